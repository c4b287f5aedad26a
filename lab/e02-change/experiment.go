// Package e02 re-runs netnice's Figure 3: a transfer runs for 10 s without a limit. Then a command from
// outside limits it to 512 KB/s. The paper had a hub of 10 Mbit/s; the experiment uses such a link, and one of 1
// Gbit/s. The program is iperf3. The experiment captures the arriving traffic packet by packet.
package e02

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/change"
	"github.com/netnice/netnice/lab/internal/chart"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const limit = 512 << 10 // bytes/s

// figures holds the figures of one link.
type figures struct {
	Link string `json:"link"`
	change.Figures
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
		b.Printf("%-7s %s\n", f.Link, f.Figures)
		if err := draw(b, f); err != nil {
			return err
		}
	}
	b.Printf("paper: drops at once from the link's rate to 512 KB/s, flat\n")
	return b.Write(all)
}

func transfer(ctx context.Context, b *bed.Bed, name string, rate uint64, free, limited time.Duration) (f figures, err error) {
	pair, err := b.ShapedPair(testbed.ShapeTBF, rate)
	if err != nil {
		return f, err
	}
	if err := b.IPerfServer(ctx, pair.B); err != nil {
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
	w := change.When{Begin: testbed.Now()}
	if err := testbed.Sleep(ctx, free); err != nil {
		return f, err
	}
	w.At = testbed.Now()
	if err := b.LimitPID(ctx, tx.Process.Pid, limit); err != nil {
		return f, err
	}
	w.Done = testbed.Now()
	if err := testbed.Sleep(ctx, w.At.Add(limited).Sub(testbed.Now())); err != nil {
		return f, err
	}
	w.End = testbed.Now()
	packets, err := c.Stop()
	if err != nil {
		return f, err
	}
	return figures{name, change.Of(packets, w, limit)}, bed.Kill(tx)
}

func draw(b *bed.Bed, f figures) error {
	return b.Draw(f.Link, chart.Chart{
		Title: "iperf3 limited to 512 KB/s in mid-transfer, link of " + f.Link,
		X:     "seconds", Y: "MB/s (IP, per 100 ms)",
		Curves: []chart.Curve{f.Curve("received", f.LimitedS)},
		Levels: map[string]float64{"512 KB/s": limit / 1e6},
	})
}
