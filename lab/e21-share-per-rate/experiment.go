// Package e21 re-runs Nemesis' Figure 7: the share of a processor that a sender needs for its rate,
// with a limit that paces it. It fits the line through these points.
package e21

import (
	"cmp"
	"context"
	"flag"
	"net/netip"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/load"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

type row struct {
	MbitPerSec float64 `json:"limit_mbit_per_sec"`
	Write      int     `json:"write_bytes"`
	load.Sent
}

type figures struct {
	Rows []row `json:"rows"`
	// PercentPerMbit and its straightness (r squared), by the size of a write.
	PercentPerMbit map[int]float64 `json:"percent_per_mbit"`
	Straight       map[int]float64 `json:"r_squared"`
}

// repeats is the number of measurements of each point, of which the median counts: what else the machine does adds some
// per cent of a processor to one of them.
const repeats = 3

// measure returns what a sender with that limit needs of a processor.
func measure(ctx context.Context, b *bed.Bed, pair *testbed.Pair, rx *testbed.Receiver, size int, limit float64) (row, error) {
	config := testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String(), WriteSize: size}
	rows := make([]row, repeats)
	for i := range rows {
		sent, err := load.Send(ctx, pair.A, rx, config, b.Length(3*time.Second, time.Second), func(pid int) error {
			return b.LimitPID(ctx, pid, uint64(limit*1e6/8))
		})
		if err != nil {
			return row{}, err
		}
		rows[i] = row{MbitPerSec: limit, Write: size, Sent: sent}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Percent, b.Percent) })
	return rows[repeats/2], nil
}

func run(ctx context.Context, b *bed.Bed) error {
	limits := []float64{50, 100, 200, 400, 800, 1200, 1600, 2000}
	if b.Quick {
		limits = []float64{100, 800}
	}
	pair, rx, err := b.Senders(ctx)
	if err != nil {
		return err
	}
	f := figures{PercentPerMbit: map[int]float64{}, Straight: map[int]float64{}}
	c := chart.Chart{Title: "The share of a processor that a sender needs", X: "Mbit/s", Y: "per cent"}
	b.Printf("%6s %8s  %10s %8s\n", "write", "Mbit/s", "sent", "CPU %")
	for _, size := range []int{2048, 64 << 10} {
		var x, y []float64
		curve := chart.Curve{Name: "writes of " + map[int]string{2048: "2 KB", 64 << 10: "64 KB"}[size]}
		for _, limit := range limits {
			r, err := measure(ctx, b, pair, rx, size, limit)
			if err != nil {
				return err
			}
			f.Rows = append(f.Rows, r)
			x, y = append(x, r.BytesPerSec*8/1e6), append(y, r.Percent)
			curve.Points = append(curve.Points, chart.XY{X: x[len(x)-1], Y: r.Percent})
			b.Printf("%6d %8.0f  %10.1f %8.2f\n", size, limit, r.BytesPerSec*8/1e6, r.Percent)
		}
		base, slope := stat.LinearRegression(x, y, nil, false)
		f.PercentPerMbit[size], f.Straight[size] = slope, stat.RSquared(x, y, nil, base, slope)
		b.Printf("%6d: %.3f + %.5f per cent for each Mbit/s, r squared %.4f\n", size, base, slope, f.Straight[size])
		c.Curves = append(c.Curves, curve)
	}
	b.Printf("paper: linear\n")
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(f)
}
