// Package e20 re-runs Nemesis' Figure 6: the rate of a sender on a processor of which another program has a
// growing share. The sender calculates for each byte, as in e24-slots. Its processor time therefore decides its
// rate, as on the paper's computer.
package e20

import (
	"context"
	"flag"
	"net/netip"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/load"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

type row struct {
	Hog int `json:"hog_percent"`
	load.Sent
	OfWhole float64 `json:"over_without"`
}

// processor is the processor of both programs: the sender would move to another free one.
const processor = 1

func run(ctx context.Context, b *bed.Bed) error {
	shares := []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}
	if b.Quick {
		shares = []int{0, 50, 90}
	}
	pair, rx, err := b.Senders(ctx)
	if err != nil {
		return err
	}
	hog, err := load.Start(load.Spin, 1)
	if err != nil {
		return err
	}
	b.Defer(hog.Close)
	if err := load.Pin(hog.PID(), processor); err != nil {
		return err
	}
	tx := load.Calculating{To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort), Write: 2048, PerByte: load.PerByte}
	var rows []row
	b.Printf("%6s  %10s %8s %10s\n", "hog %", "MB/s", "CPU %", "of whole")
	curve := chart.Curve{Name: "sent"}
	for _, share := range shares {
		r := row{Hog: share}
		r.Sent, err = tx.Send(ctx, pair.A, rx, b.Length(4*time.Second, time.Second), func(pid int) error {
			if err := load.Pin(pid, processor); err != nil {
				return err
			}
			// Without a share it would have half of the processor: at 0 it has next to nothing.
			n := share
			if n == 0 {
				n = -255
			}
			_, err := b.Netnice(ctx, "power", strconv.Itoa(hog.PID()), strconv.Itoa(n))
			return err
		})
		if err != nil {
			return err
		}
		rows = append(rows, r)
		last := &rows[len(rows)-1]
		last.OfWhole = last.BytesPerSec / rows[0].BytesPerSec
		curve.Points = append(curve.Points, chart.XY{X: float64(share), Y: last.OfWhole})
		b.Printf("%6d  %10.1f %8.1f %10.3f\n", share, last.BytesPerSec/1e6, last.Percent, last.OfWhole)
	}
	b.Printf("paper: it falls in proportion\n")
	c := chart.Chart{
		Title: "A sender beside a program with a share of its processor", X: "the other's per cent", Y: "part of what it sends alone",
		Curves: []chart.Curve{curve, {Name: "in proportion", Points: []chart.XY{{X: 0, Y: 1}, {X: 100, Y: 0}}}},
	}
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(rows)
}
