// Package flows analyses connections that send side by side: the arrived bytes of each, and of all, second by
// second.
package flows

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Flows holds the bytes of IP packets in each second.
type Flows struct {
	Each [][]float64 // per connection
	Sum  []float64   // sum over all packets
}

// Of computes flows from a capture; the senders' ports distinguish the connections.
func Of(packets []capture.Packet, ports []uint16, from, to testbed.Instant) Flows {
	f := Flows{Sum: capture.Rates(packets, from, to, time.Second, nil)}
	for _, port := range ports {
		f.Each = append(f.Each, capture.Rates(packets, from, to, time.Second, func(p capture.Packet) bool { return p.From == port }))
	}
	return f
}

// Means returns each connection's mean rate.
func (f Flows) Means() []float64 {
	means := make([]float64, 0, len(f.Each))
	for _, rates := range f.Each {
		means = append(means, stat.Of(rates).Mean)
	}
	return means
}

// Curves returns the connections' sum and then each connection, named "NAME 1"
// and so on, in KB/s.
func (f Flows) Curves(name string) []chart.Curve {
	sum := make([]float64, len(f.Sum))
	curves := make([]chart.Curve, 1, len(f.Each)+1)
	for i, rates := range f.Each {
		for s, rate := range rates {
			sum[s] += rate
		}
		curves = append(curves, curve(fmt.Sprintf("%s %d", name, i+1), rates))
	}
	curves[0] = curve("sum", sum)
	return curves
}

func curve(name string, rates []float64) chart.Curve {
	c := chart.Curve{Name: name}
	for s, rate := range rates {
		c.Points = append(c.Points, chart.XY{X: float64(s) + 0.5, Y: rate / 1e3})
	}
	return c
}
