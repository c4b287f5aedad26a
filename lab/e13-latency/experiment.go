// Package e13 re-runs nlimit's Table 2: the round trip on a machine with and without the mechanism, without
// a limit, on an idle link. The paper's figure came from its queues. The command therefore also measures during a
// transfer that fills a link of 100 Mbit/s, without a limit and with one of nine tenths of the link.
package e13

import (
	"context"
	"flag"
	"net/netip"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/echo"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	link  = 100e6 / 8 // bytes/s
	limit = link * 9 / 10
)

// oneCase holds the round trips of a case in milliseconds.
type oneCase struct {
	name  string
	trips []float64
}

func run(ctx context.Context, b *bed.Bed) error {
	length := b.Length(10*time.Second, 2*time.Second)
	change, err := b.Switcher(ctx)
	if err != nil {
		return err
	}
	// The idle link is measured in short turns without and with netnice, since they hardly differ.
	off, on, err := bed.Quads(ctx, 5, change, func() ([]float64, error) {
		return trips(ctx, b, length/10, false, false)
	})
	if err != nil {
		return err
	}
	cases := []oneCase{
		{"idle, without netnice", slices.Concat(off...)},
		{"idle, netnice up", slices.Concat(on...)},
	}
	for _, c := range []struct {
		name string
		cut  bool
	}{{"beside a transfer, without netnice", false}, {"beside a transfer limited to 90% of the link", true}} {
		if err := change(c.cut); err != nil {
			return err
		}
		found, err := trips(ctx, b, length, true, c.cut)
		if err != nil {
			return err
		}
		cases = append(cases, oneCase{c.name, found})
	}
	all := make([]echo.Figures, 0, len(cases))
	curves := make([]chart.Curve, 0, len(cases))
	for _, c := range cases {
		f := echo.Of(c.name, c.trips)
		all = append(all, f)
		b.Printf("%s\n", f)
		curves = append(curves, echo.Dots(c.name, c.trips))
	}
	b.Printf("paper: mean 2.24 ms (sd 1.64) without, 1.31 (0.23) with\n")
	if err := b.Draw("", chart.Chart{
		Title: "Round trips of one byte on 100 Mbit/s", X: "request", Y: "ms", LogY: true, YMax: 1000, Curves: curves,
	}); err != nil {
		return err
	}
	return b.Write(all)
}

// trips sends a byte every 20 ms and waits for its echo; it returns the round
// trips in milliseconds.
func trips(ctx context.Context, b *bed.Bed, length time.Duration, bulk, cut bool) ([]float64, error) {
	pair, err := b.Pair()
	if err != nil {
		return nil, err
	}
	if err := testbed.ShapeHTB(pair.A, link); err != nil {
		return nil, err
	}
	_, err = b.Receiver(pair.B, testbed.ReceiverConfig{Ports: []testbed.Port{
		{Number: testbed.DefaultPort}, echo.Port(),
	}})
	if err != nil {
		return nil, err
	}
	if bulk {
		tx, err := b.Sender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String()})
		if err != nil {
			return nil, err
		}
		if cut {
			if err := b.LimitPID(ctx, tx.PID(), limit); err != nil {
				return nil, err
			}
		}
		if _, err := tx.Start(); err != nil {
			return nil, err
		}
		defer tx.Close()
		if err := testbed.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	return echo.Measure(ctx, b, pair.A, pair.B4, 20*time.Millisecond, length)
}
