// Command e17-tcp-paths re-runs topp's Figures 10 to 12: two hosts send by TCP through a token bucket of
// 28 kbit/s, as they are, and both paced at what the path carries.
package main

import (
	"context"
	"time"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/datagram"
	"github.com/netnice/netnice/lab/internal/narrow"
)

func main() {
	datagram.MaybeRun()
	bed.Main("e17-tcp-paths", run)
}

func run(ctx context.Context, b *bed.Bed) error {
	found, err := narrow.Run(ctx, b, b.Length(300*time.Second, 40*time.Second),
		narrow.Transfer{Name: "as they are", Beside: true},
		narrow.Transfer{Name: "both adapt", Beside: true, Adapt: true, AdaptBeside: true})
	if err != nil {
		return err
	}
	seconds, packets := narrow.Compare(found[0], found[1])
	b.Printf("the same file: %.3f of the time, %.3f of the packets; paper: 2465 -> 1661 s (0.674), 2748 -> 2348 packets (0.854)\n", seconds, packets)
	share := found[1].BitsPerSec / (found[1].BitsPerSec + found[1].BesideBits)
	b.Printf("shares with both: %.3f : %.3f; paper: fair (a figure without numbers)\n", share, 1-share)
	if err := narrow.Draw(b, "Two TCP transfers through 28 kbit/s", found); err != nil {
		return err
	}
	return b.Write(found)
}
