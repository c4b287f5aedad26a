// Package e23 re-runs tender's Figure 4: the TCP rate of a program with n per cent of the processor. The
// program calculates for each byte for as long as 100 Mbit/s take, in writes of 1024 and 2048 bytes. A second case
// has a path of 50 Mbit/s, where the share soon decides nothing.
package e23

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
	Line  string `json:"line"` // "" = none
	Write int    `json:"write_bytes"`
	N     int    `json:"n"`
	load.Sent
	OfWhole float64 `json:"over_n_100"` // over its rate at n = 100
}

func run(ctx context.Context, b *bed.Bed) error {
	numbers := []int{100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5}
	if b.Quick {
		numbers = []int{100, 50, 10}
	}
	pair, rx, err := b.Senders(ctx)
	if err != nil {
		return err
	}
	if err := b.Inhabit(pair.A); err != nil {
		return err
	}
	to := netip.AddrPortFrom(pair.B4, testbed.DefaultPort)
	var rows []row
	b.Printf("%-8s %6s %5s  %10s %8s %12s\n", "line", "write", "n", "MB/s", "CPU %", "of n = 100")
	for _, line := range []string{"", "50mbit"} {
		if line != "" {
			if _, err := b.NetniceIn(ctx, pair.A, "link", testbed.Device, "--up", line); err != nil {
				return err
			}
		}
		for _, size := range []int{1024, 2048} {
			whole := 0.0
			for _, n := range numbers {
				r := row{Line: line, Write: size, N: n}
				r.Sent, err = load.Calculating{To: to, Write: size, PerByte: load.PerByte}.Send(ctx, pair.A, rx, b.Length(3*time.Second, time.Second), func(pid int) error {
					_, err := b.Netnice(ctx, "power", strconv.Itoa(pid), strconv.Itoa(n))
					return err
				})
				if err != nil {
					return err
				}
				if n == 100 {
					whole = r.BytesPerSec
				}
				r.OfWhole = r.BytesPerSec / whole
				rows = append(rows, r)
				b.Printf("%-8s %6d %5d  %10.1f %8.1f %12.3f\n", line, size, n, r.BytesPerSec/1e6, r.Percent, r.OfWhole)
			}
		}
	}
	b.Printf("paper: linear on the faster computer, with either size; not so on the slower one\n")
	c := chart.Chart{Title: "What a program sends with n per cent of a processor", X: "n", Y: "part of what it sends at n = 100"}
	for _, line := range []string{"", "50mbit"} {
		for _, size := range []int{1024, 2048} {
			curve := chart.Curve{Name: strconv.Itoa(size) + " bytes a write" + map[string]string{"50mbit": ", line of 50 Mbit/s"}[line]}
			for _, r := range rows {
				if r.Line == line && r.Write == size {
					curve.Points = append(curve.Points, chart.XY{X: float64(r.N), Y: r.OfWhole})
				}
			}
			c.Curves = append(c.Curves, curve)
		}
	}
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(rows)
}
