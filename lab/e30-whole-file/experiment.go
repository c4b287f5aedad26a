// Package e30 measures a time of topp's transfers that the paper could not measure: the time until a
// whole file has arrived. The paper's TFTP did not wait for confirmations, so no file arrived whole. Here TFTP sends in
// windows of 64 blocks, and repeats lost ones. The path is the token bucket of 28 kbit/s, alone and shared with a TCP
// connection of another host, unchanged and adapted.
package e30

import (
	"context"
	"flag"
	"time"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

func run(ctx context.Context, b *bed.Bed) error {
	file, longest := 100_000, 200*time.Second
	if b.Quick {
		file, longest = 20_000, 40*time.Second
	}
	found, err := narrow.Run(ctx, b, longest,
		narrow.Transfer{Name: "as it is", UDP: true, FileBytes: file},
		narrow.Transfer{Name: "adapt", UDP: true, FileBytes: file, Adapt: true},
		narrow.Transfer{Name: "beside TCP, as it is", UDP: true, FileBytes: file, Beside: true},
		narrow.Transfer{Name: "beside TCP, adapt", UDP: true, FileBytes: file, Beside: true, Adapt: true})
	if err != nil {
		return err
	}
	b.Printf("the same file: alone %.3f of the time, beside TCP %.3f, adapted over as it is; paper: 420.15 -> 403.28 s for what was sent (0.960), and no file was whole\n",
		found[0].BitsPerSec/max(found[1].BitsPerSec, 1), found[2].BitsPerSec/max(found[3].BitsPerSec, 1))
	c := chart.Chart{Title: "A file by TFTP through 28 kbit/s", X: "s", Y: "bytes without a gap"}
	for _, f := range found {
		c.Curves = append(c.Curves, chart.Curve{Name: f.Name, Points: []chart.XY{{}, {X: f.Seconds, Y: float64(f.File.Arrived)}}})
	}
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(found)
}
