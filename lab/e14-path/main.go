// Command e14-path re-runs topp's Table I: a UDP transfer without a congestion control through a token
// bucket of 28 kbit/s, as it is and paced at what the path carries. The sender offers ten times as
// much, as the paper's TFTP without its waiting did.
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
	bed.Main("e14-path", run)
}

func run(ctx context.Context, b *bed.Bed) error {
	found, err := narrow.Run(ctx, b, b.Length(180*time.Second, 30*time.Second),
		narrow.Transfer{Name: "as it is", UDP: true},
		narrow.Transfer{Name: "adapt", UDP: true, Adapt: true})
	if err != nil {
		return err
	}
	b.Printf("adapt %.3f of as it is; paper: 24.56 -> 25.58 kbit/s (1.042), in runs of 415 to 428 and 400 to 407 s\n", found[1].BitsPerSec/found[0].BitsPerSec)
	if err := narrow.Draw(b, "UDP through 28 kbit/s", found); err != nil {
		return err
	}
	return b.Write(found)
}
