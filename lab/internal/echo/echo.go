// Package echo measures the delay that a typing person feels. A program sends one byte at intervals, and records the
// time until its echo is back.
package echo

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

// port is the port at which a receiver echoes.
const port = 5002

// Port returns the port configuration of an echoing receiver.
func Port() testbed.Port { return testbed.Port{Number: port, RequestBytes: 1, ReplyBytes: 1} }

// Measure sends a byte from the namespace to a receiver with Port, waits for its echo and a pause, and repeats that
// for the given time. It returns the round trips in milliseconds.
func Measure(ctx context.Context, b *bed.Bed, n *testbed.NetNS, to netip.Addr, pause, length time.Duration) ([]float64, error) {
	tx, err := b.Sender(n, testbed.SenderConfig{
		To: netip.AddrPortFrom(to, port).String(), Mode: testbed.Request,
		RequestBytes: 1, ReplyBytes: 1, Pause: pause,
	})
	if err != nil {
		return nil, err
	}
	begin, err := tx.Start()
	if err != nil {
		return nil, err
	}
	if err := testbed.Sleep(ctx, length); err != nil {
		return nil, err
	}
	if _, err := tx.Stop(); err != nil {
		return nil, err
	}
	var trips []float64
	for _, d := range tx.Latency(begin, testbed.Now()) {
		trips = append(trips, d.Seconds()*1e3)
	}
	return trips, nil
}

// Figures holds the figures of one case, in milliseconds.
type Figures struct {
	Case string      `json:"case"`
	RTT  stat.Spread `json:"round_trip_ms"`
	P99  float64     `json:"p99_ms"`
}

// Of computes the figures of round trips.
func Of(name string, trips []float64) Figures {
	return Figures{Case: name, RTT: stat.Of(trips), P99: testbed.Percentile(trips, 99)}
}

func (f Figures) String() string {
	return fmt.Sprintf("%-46s mean %7.3f ms  sd %7.3f  median %7.3f  p99 %7.3f  max %7.3f  (%d)",
		f.Case, f.RTT.Mean, f.RTT.SD, f.RTT.Median, f.P99, f.RTT.Max, f.RTT.N)
}

// Dots returns the first round trips as dots for a plot.
func Dots(name string, trips []float64) chart.Curve {
	const shown = 80
	c := chart.Curve{Name: name, Dots: true}
	for i, trip := range trips[:min(len(trips), shown)] {
		c.Points = append(c.Points, chart.XY{X: float64(i), Y: trip})
	}
	return c
}
