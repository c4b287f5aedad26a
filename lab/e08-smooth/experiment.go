// Package e08 re-runs nlimit's Figure 4: a connection that fills a link is bursty, and a connection that
// limited itself by setsockopt is smooth. The paper's link was a LAN of 100 Mbit/s. The experiment uses such a link,
// with a limit of a tenth of it. A sender of today fills the link without a pause. So the experiment also has one that
// stands still between windows, as the paper's did, without a limit and with it.
package e08

import (
	"context"
	"flag"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	link  = 100e6 / 8 // bytes/s
	limit = link / 10
	step  = 10 * time.Millisecond

	// A sender that stands still between windows: 128 KB are 10.5 ms of the link.
	window = 128 << 10
	pause  = 10 * time.Millisecond
)

// figures holds the figures of one connection.
type figures struct {
	Name  string      `json:"connection"`
	Rates stat.Spread `json:"rates_per_10ms"`
	// Variation is the standard deviation of the rates over their mean.
	Variation float64   `json:"coefficient_of_variation"`
	Gaps      gaps      `json:"gaps_between_packets_us"`
	RTT       int64     `json:"smoothed_rtt_us_median"`
	Series    []float64 `json:"series"`
}

type gaps struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

func run(ctx context.Context, b *bed.Bed) error {
	if err := b.Up(ctx); err != nil {
		return err
	}
	length := b.Length(10*time.Second, 2*time.Second)
	var all []figures
	var curves []chart.Curve
	byWindows := func(fd int) { bed.FillByWindows(fd, window, pause) }
	for _, c := range []struct {
		name  string
		limit uint64
		fill  func(fd int)
	}{{"saturated", 0, bed.Fill}, {"limited", limit, bed.Fill}, {"in windows", 0, byWindows}, {"in windows, limited", limit, byWindows}} {
		f, err := connection(ctx, b, c.name, c.limit, c.fill, length)
		if err != nil {
			return err
		}
		all = append(all, f)
		b.Printf("%-19s %.3f MB/s; per 10 ms: sd %.1f%% of the mean, %.3f..%.3f MB/s; gaps p50 %d us, p99 %d, max %d; round trip %d us\n",
			f.Name, f.Rates.Mean/1e6, 100*f.Variation, f.Rates.Min/1e6, f.Rates.Max/1e6, f.Gaps.P50, f.Gaps.P99, f.Gaps.Max, f.RTT)
		curve := chart.Curve{Name: f.Name}
		for i, rate := range f.Series[:min(len(f.Series), 400)] {
			curve.Points = append(curve.Points, chart.XY{X: float64(i) * step.Seconds(), Y: rate / 1e6})
		}
		curves = append(curves, curve)
	}
	b.Printf("paper: the limited connection is almost constant, the saturated one very bursty (a figure without numbers)\n")
	if err := b.Draw("", chart.Chart{
		Title: "One connection on 100 Mbit/s: saturated, and limited by setsockopt",
		X:     "seconds", Y: "MB/s (IP, per 10 ms)", Curves: curves,
		Levels: map[string]float64{"limit": limit / 1e6},
	}); err != nil {
		return err
	}
	return b.Write(all)
}

func connection(ctx context.Context, b *bed.Bed, name string, rate uint64, fill func(fd int), length time.Duration) (f figures, err error) {
	// HTB has a deep queue, like a card with its ring; TBF would drop at 50 ms.
	pair, err := b.ShapedPair(testbed.ShapeHTB, link)
	if err != nil {
		return f, err
	}
	c, err := b.Captured(pair.B)
	if err != nil {
		return f, err
	}
	fd, err := bed.Dial(pair.A, netip.AddrPortFrom(pair.B4, testbed.DefaultPort), rate)
	if err != nil {
		return f, err
	}
	go fill(fd)
	begin := testbed.Now().Add(time.Second) // after its start
	var trips []int64
	for testbed.Now() < begin.Add(length) {
		if err := testbed.Sleep(ctx, 10*time.Millisecond); err != nil {
			return f, err
		}
		trip, err := bed.RTT(fd)
		if err != nil {
			return f, err
		}
		trips = append(trips, trip.Microseconds())
	}
	packets, err := c.Stop()
	if err != nil {
		return f, err
	}
	f.Name, f.RTT = name, testbed.Percentile(trips, 50)
	f.Series = capture.Rates(packets, begin, begin.Add(length), step, nil)
	f.Rates = stat.Of(f.Series)
	f.Variation = f.Rates.SD / f.Rates.Mean
	var between []int64
	for i := 1; i < len(packets); i++ {
		if packets[i].T > begin {
			between = append(between, packets[i].T.Sub(packets[i-1].T).Microseconds())
		}
	}
	f.Gaps = gaps{testbed.Percentile(between, 50), testbed.Percentile(between, 99), testbed.Percentile(between, 100)}
	return f, bed.Reset(fd)
}
