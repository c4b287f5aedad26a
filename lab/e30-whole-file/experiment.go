// Package e30 measures a time of topp's transfers that the paper could not measure: the time until a
// whole file has arrived. The paper's TFTP did not wait for confirmations, so no file arrived whole. Here TFTP sends in
// windows of blocks, and repeats lost ones. The path is the token bucket of 28 kbit/s, alone and shared with a TCP
// connection of another host, unchanged and adapted. TFTP waits 5 s for an ACK: so long a window of 16 blocks takes of half
// of the path. One of 8 blocks takes 2.5 s, one of 64 blocks 10 s of the whole path.
package e30

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

// name returns the name of a transfer, by which its figures are found.
func name(blocks int, beside, adapt bool) string {
	text := fmt.Sprintf("%d blocks", blocks)
	if beside {
		text += " beside TCP"
	}
	if adapt {
		return text + ", adapt"
	}
	return text + ", as it is"
}

func run(ctx context.Context, b *bed.Bed) error {
	file, longest := 100_000, 200*time.Second
	if b.Quick {
		file, longest = 20_000, 40*time.Second
	}
	var list []narrow.Transfer
	for _, blocks := range []int{8, 16, 64} {
		for _, beside := range []bool{false, true} {
			for _, adapt := range []bool{false, true} {
				list = append(list, narrow.Transfer{
					Name: name(blocks, beside, adapt), UDP: true, FileBytes: file, WindowBlocks: blocks, Beside: beside, Adapt: adapt,
				})
			}
		}
	}
	found, err := narrow.Run(ctx, b, longest, list...)
	if err != nil {
		return err
	}
	for i := 0; i < len(found); i += 2 {
		b.Printf("%s: adapted %.3f of the time for the same file\n", found[i].Name, found[i].BitsPerSec/max(found[i+1].BitsPerSec, 1))
	}
	b.Printf("paper: 420.15 -> 403.28 s for what was sent (0.960), and no file was whole\n")
	c := chart.Chart{Title: "A file by TFTP through 28 kbit/s", X: "s", Y: "bytes without a gap"}
	for _, f := range found {
		c.Curves = append(c.Curves, chart.Curve{Name: f.Name, Points: []chart.XY{{}, {X: f.Seconds, Y: float64(f.File.Arrived)}}})
	}
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(found)
}
