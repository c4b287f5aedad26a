// Command e16-tcp-path re-runs topp's Figures 8 and 9: a TCP transfer through a token bucket of 28 kbit/s
// beside a TCP connection of another host, which nobody paces; the transfer as it is, and paced at what
// the path carries. The paper sent one file; here a time is looked at, and what the file would have
// taken follows from it.
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
	bed.Main("e16-tcp-path", run)
}

func run(ctx context.Context, b *bed.Bed) error {
	found, err := narrow.Run(ctx, b, b.Length(300*time.Second, 40*time.Second),
		narrow.Transfer{Name: "as it is", Beside: true},
		narrow.Transfer{Name: "adapt", Beside: true, Adapt: true})
	if err != nil {
		return err
	}
	seconds, packets := narrow.Compare(found[0], found[1])
	b.Printf("the same file: %.3f of the time, %.3f of the packets; paper: 2465 -> 2457 s (0.997), 2748 -> 2651 packets (0.965)\n", seconds, packets)
	if err := narrow.Draw(b, "TCP through 28 kbit/s, beside TCP", found); err != nil {
		return err
	}
	return b.Write(found)
}
