// Command e02-change re-runs netnice's Figure 3: a transfer runs for 10 s
// without a limit and is then limited to 512 KB/s by a command from outside.
// The paper had a hub of 10 Mbit/s; this is run on such a link, and on one of
// 1 Gbit/s. The program is iperf3; what arrives is captured packet by packet.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

func main() { bed.Main("e02-change", run) }

const (
	limit = 512 << 10 // bytes/s
	step  = 100 * time.Millisecond
)

// figures of one link. Rates are bytes of IP packets per second.
type figures struct {
	Link     string        `json:"link"`
	Before   stat.Spread   `json:"before"`           // per 100 ms
	After    stat.Spread   `json:"after"`            // per 100 ms, from 1 s after the command on
	Ratio    float64       `json:"after_over_limit"` // mean
	Command  time.Duration `json:"command_took_ns"`
	Settled  time.Duration `json:"settled_after_ns"` // from the command's start to the first 100 ms within 10% of the limit, and so the next four
	Seconds  []float64     `json:"per_second_after"`
	Series   []float64     `json:"series"`
	StepNS   time.Duration `json:"series_step_ns"`
	Limit    float64       `json:"limit"`
	LimitedS float64       `json:"limited_at_s"`
}

func run(ctx context.Context, b *bed.Bed) error {
	if err := b.Up(ctx); err != nil {
		return err
	}
	free, limited := b.Length(10*time.Second, 2*time.Second), b.Length(10*time.Second, 3*time.Second)
	var all []figures
	for _, link := range []struct {
		name string
		rate uint64 // bytes/s
	}{{"10mbit", 10e6 / 8}, {"1gbit", 1e9 / 8}} {
		f, err := transfer(ctx, b, link.name, link.rate, free, limited)
		if err != nil {
			return fmt.Errorf("%s: %w", link.name, err)
		}
		all = append(all, f)
		b.Printf("%-7s before %.3f MB/s; after %.4f of the limit, 100 ms windows %.3f..%.3f; command %v, in force %v after its start\n",
			f.Link, f.Before.Median/1e6, f.Ratio, f.After.Min/limit, f.After.Max/limit,
			f.Command.Round(time.Millisecond), f.Settled.Round(time.Millisecond))
		if err := draw(b, f); err != nil {
			return err
		}
	}
	b.Printf("paper: drops at once from the link's rate to 512 KB/s, flat\n")
	return b.Write(all)
}

func transfer(ctx context.Context, b *bed.Bed, name string, rate uint64, free, limited time.Duration) (f figures, err error) {
	pair, err := b.ShapedPair(testutil.ShapeTBF, rate)
	if err != nil {
		return f, err
	}
	if err := b.IPerfServer(ctx, pair.B, pair.B4); err != nil {
		return f, err
	}
	c, err := capture.Start(pair.B)
	if err != nil {
		return f, err
	}
	tx, err := b.Start(pair.A, "iperf3", "--client", pair.B4.String(), "--time", strconv.Itoa(int((free+limited).Seconds())+2))
	if err != nil {
		return f, err
	}
	begin := testutil.Now()
	if err := testutil.Sleep(ctx, free); err != nil {
		return f, err
	}
	at := testutil.Now()
	if err := b.LimitPID(ctx, tx.Process.Pid, limit); err != nil {
		return f, err
	}
	f.Command = testutil.Now().Sub(at)
	if err := testutil.Sleep(ctx, at.Add(limited).Sub(testutil.Now())); err != nil {
		return f, err
	}
	end := testutil.Now()
	packets, err := c.Stop()
	if err != nil {
		return f, err
	}
	f.Link, f.Limit, f.LimitedS, f.StepNS = name, limit, at.Sub(begin).Seconds(), step
	f.Series = capture.Rates(packets, begin, end, step, nil)
	// The first half second is iperf3's own start.
	f.Before = stat.Of(capture.Rates(packets, begin.Add(time.Second/2), at, step, nil))
	steady := at.Add(time.Second)
	f.After = stat.Of(capture.Rates(packets, steady, end, step, nil))
	f.Seconds = capture.Rates(packets, steady, end, time.Second, nil)
	f.Ratio = stat.Of(f.Seconds).Mean / limit
	f.Settled = settled(capture.Rates(packets, at, end, step/10, nil))
	return f, bed.Kill(tx)
}

// settled returns when five windows of 100 ms in a row began to be within 10%
// of the limit, from rates per 10 ms.
func settled(rates []float64) time.Duration {
	const window, windows = 10, 5
	for from := 0; from+window*windows <= len(rates); from++ {
		good := true
		for w := range windows {
			mean := stat.Of(rates[from+w*window : from+(w+1)*window]).Mean
			good = good && mean > 0.9*limit && mean < 1.1*limit
		}
		if good {
			return time.Duration(from) * step / window
		}
	}
	return -1
}

func draw(b *bed.Bed, f figures) error {
	var points []chart.XY
	for i, rate := range f.Series {
		points = append(points, chart.XY{X: (float64(i) + 0.5) * step.Seconds(), Y: rate / 1e6})
	}
	return b.Draw(f.Link, chart.Chart{
		Title: "iperf3 limited to 512 KB/s in mid-transfer, link of " + f.Link,
		X:     "seconds", Y: "MB/s (IP, per 100 ms)",
		Curves: []chart.Curve{{Name: "received", Points: points}},
		Levels: map[string]float64{"512 KB/s": limit / 1e6},
	})
}
