// Command e09-sockets re-runs nlimit's Figure 5: several sockets, each limited
// to 3 KB/s by its program's own setsockopt. At two packets a second per socket
// the sum is made of packets; the question is whether each socket is right.
package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

func main() { bed.Main("e09-sockets", run) }

const (
	sockets = 8
	limit   = 3000 // bytes/s of each
)

type figures struct {
	Sockets  []float64   `json:"mean_over_limit"` // of each socket
	Sum      stat.Spread `json:"sum_per_second"`
	Steady   stat.Spread `json:"sum_per_second_after_6s"`
	SumRatio float64     `json:"sum_over_limits"`
	Jain     float64     `json:"jain"`
	Packet   int         `json:"largest_packet_bytes"`
	Series   [][]float64 `json:"series_per_second"` // of each socket
}

func run(ctx context.Context, b *bed.Bed) error {
	length := 40 * time.Second
	if b.Quick {
		length = 10 * time.Second
	}
	if err := b.Up(ctx); err != nil {
		return err
	}
	pair, err := b.Pair()
	if err != nil {
		return err
	}
	if _, err := b.Receiver(pair.B, testutil.ReceiverConfig{}); err != nil {
		return err
	}
	c, err := capture.Start(pair.B)
	if err != nil {
		return err
	}
	var ports []uint16
	for range sockets {
		fd, err := bed.Dial(pair.A, netip.AddrPortFrom(pair.B4, testutil.DefaultPort), limit)
		if err != nil {
			return err
		}
		b.Defer(func() error { return bed.Reset(fd) })
		port, err := bed.LocalPort(fd)
		if err != nil {
			return err
		}
		ports = append(ports, port)
		go bed.Fill(fd)
	}
	begin := testutil.Now().Add(time.Second)
	if err := testutil.Sleep(ctx, length+time.Second); err != nil {
		return err
	}
	packets, err := c.Stop()
	if err != nil {
		return err
	}
	f := compute(packets, ports, begin, begin.Add(length))
	b.Printf("%d sockets of 3 KB/s: each %.4f..%.4f of its limit, sum %.4f, Jain %.5f\nsum per second %.1f..%.1f KB/s, from the 7th second on %.1f..%.1f; a packet is %d bytes\n",
		sockets, testutil.Percentile(f.Sockets, 0), testutil.Percentile(f.Sockets, 100), f.SumRatio, f.Jain,
		f.Sum.Min/1e3, f.Sum.Max/1e3, f.Steady.Min/1e3, f.Steady.Max/1e3, f.Packet)
	b.Printf("paper: each approximately right and bursty, the sum very bursty (a figure without numbers)\n")
	if err := draw(b, f); err != nil {
		return err
	}
	return b.Write(f)
}

func compute(packets []capture.Packet, ports []uint16, begin, end testutil.Instant) figures {
	var f figures
	for _, port := range ports {
		rates := capture.Rates(packets, begin, end, time.Second, func(p capture.Packet) bool { return p.From == port })
		f.Series = append(f.Series, rates)
		f.Sockets = append(f.Sockets, stat.Of(rates).Mean/limit)
	}
	f.Jain = testutil.Jain(f.Sockets)
	sums := capture.Rates(packets, begin, end, time.Second, nil)
	f.Sum, f.Steady = stat.Of(sums), stat.Of(sums[5:])
	f.SumRatio = f.Sum.Mean / (limit * sockets)
	for _, p := range packets {
		f.Packet = max(f.Packet, p.Bytes)
	}
	return f
}

func draw(b *bed.Bed, f figures) error {
	sum := chart.Curve{Name: "sum"}
	var curves []chart.Curve
	for i, rates := range f.Series {
		one := chart.Curve{Name: fmt.Sprintf("socket %d", i+1)}
		for s, rate := range rates {
			at := float64(s) + 0.5
			one.Points = append(one.Points, chart.XY{X: at, Y: rate / 1e3})
			if i == 0 {
				sum.Points = append(sum.Points, chart.XY{X: at})
			}
			sum.Points[s].Y += rate / 1e3
		}
		if i < 3 { // the others look the same
			curves = append(curves, one)
		}
	}
	return b.Draw("", chart.Chart{
		Title: "8 sockets of 3 KB/s each", X: "seconds", Y: "KB/s (IP, per second)", YMax: 32,
		Curves: append([]chart.Curve{sum}, curves...), Levels: map[string]float64{"8 x 3 KB/s": sockets * limit / 1e3},
	})
}
