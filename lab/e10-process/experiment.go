// Package e10 re-runs nlimit's Figure 6: a program with four
// connections under a limit of 12 KB/s for the process, and the same with the
// limit on its user.
package e10

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/flows"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	connections = 4
	limit       = 12000 // bytes/s
	uid         = 64210 // a user without any other process
)

// figures holds the figures of one kind of limit.
type figures struct {
	On     string      `json:"limit_on"`
	Ratio  float64     `json:"sum_over_limit"`
	Sum    stat.Spread `json:"sum_per_second"`
	Steady stat.Spread `json:"sum_per_second_after_5s"`
	Jain   float64     `json:"jain"`
	Series [][]float64 `json:"series_per_second"` // per connection
}

func run(ctx context.Context, b *bed.Bed) error {
	length := b.Length(40*time.Second, 10*time.Second)
	if err := b.Up(ctx); err != nil {
		return err
	}
	var all []figures
	for _, on := range []string{"process", "user"} {
		conns, err := traffic(ctx, b, on, length)
		if err != nil {
			return fmt.Errorf("limit on a %s: %w", on, err)
		}
		f := compute(on, conns)
		all = append(all, f)
		b.Printf("limit on the %-8s sum %.4f of the limit; per second %.2f..%.2f KB/s, from the 6th second on %.2f..%.2f; Jain %.4f\n",
			on, f.Ratio, f.Sum.Min/1e3, f.Sum.Max/1e3, f.Steady.Min/1e3, f.Steady.Max/1e3, f.Jain)
		if err := draw(b, on, conns); err != nil {
			return err
		}
	}
	b.Printf("paper: the sum is flat at 12 KB/s, the connections compete; the same with a user's limit (a figure without numbers)\n")
	return b.Write(all)
}

func traffic(ctx context.Context, b *bed.Bed, on string, length time.Duration) (f flows.Flows, err error) {
	pair, err := b.Pair()
	if err != nil {
		return f, err
	}
	c, err := b.Captured(pair.B)
	if err != nil {
		return f, err
	}
	cfg := testbed.SenderConfig{
		To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String(), Connections: connections, UID: uid,
	}
	tx, err := b.Sender(pair.A, cfg)
	if err != nil {
		return f, err
	}
	if on == "user" {
		err = b.LimitUser(ctx, uid, limit)
	} else {
		err = b.LimitPID(ctx, tx.PID(), limit)
	}
	if err != nil {
		return f, err
	}
	begin, err := tx.Start()
	if err != nil {
		return f, err
	}
	begin = begin.Add(time.Second)
	if err := testbed.Sleep(ctx, length+time.Second); err != nil {
		return f, err
	}
	packets, err := c.Stop()
	if err != nil {
		return f, err
	}
	report, err := tx.Stop()
	if err != nil {
		return f, err
	}
	var ports []uint16
	for _, conn := range report.Conns {
		ports = append(ports, conn.LocalPort)
	}
	return flows.Of(packets, ports, begin, begin.Add(length)), nil
}

func compute(on string, conns flows.Flows) figures {
	f := figures{On: on, Series: conns.Each, Sum: stat.Of(conns.Sum), Steady: stat.Of(conns.Sum[4:]), Jain: testbed.Jain(conns.Means())}
	f.Ratio = f.Sum.Mean / limit
	return f
}

func draw(b *bed.Bed, on string, conns flows.Flows) error {
	return b.Draw(on, chart.Chart{
		Title: "Four connections under one limit of 12 KB/s on the " + on,
		X:     "seconds", Y: "KB/s (IP, per second)", YMax: 18,
		Curves: conns.Curves("connection"), Levels: map[string]float64{"12 KB/s": limit / 1e3},
	})
}
