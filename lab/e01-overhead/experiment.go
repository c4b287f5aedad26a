// Package e01 re-runs netnice's Table 1: the throughput of a file
// transfer over the loopback device, unlimited, on a machine with and without
// netnice, 20 runs each. The paper used FTP and 45 MB; this uses curl and
// Python's http.server and ten times as much.
package e01

import (
	"context"
	"flag"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const fileSize = 450e6

func run(ctx context.Context, b *bed.Bed) error {
	rounds := 10 // each with two runs without netnice and two with it
	if b.Quick {
		rounds = 1
	}
	pair, err := b.Pair()
	if err != nil {
		return err
	}
	url, err := b.FileServer(ctx, pair.B, pair.B4, fileSize)
	if err != nil {
		return err
	}
	change, err := b.Switcher(ctx)
	if err != nil {
		return err
	}
	var figures struct {
		Loopback bed.Comparison `json:"loopback"`
		Veth     bed.Comparison `json:"veth"`
	}
	for _, part := range []struct {
		name string
		from *testbed.NetNS
		into *bed.Comparison
	}{{"lo", pair.B, &figures.Loopback}, {"veth", pair.A, &figures.Veth}} {
		off, on, err := bed.Quads(ctx, rounds, change, bed.WithCPU(func() (float64, error) { return bed.Curl(ctx, part.from, url) }))
		if err != nil {
			return err
		}
		*part.into = bed.CompareRuns(off, on)
		b.Printf("%-5s %s\n", part.name, *part.into)
	}
	b.Printf("paper, lo: 13.94 MB/s with (sd 0.66), 13.65 without (sd 0.58), 20 runs: no measurable overhead\n")
	return b.Write(figures)
}
