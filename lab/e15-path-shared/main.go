// Command e15-path-shared re-runs topp's Figure 5: the UDP transfer of e14-path beside a TCP connection
// of another host, which fills the bottleneck.
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
	bed.Main("e15-path-shared", run)
}

func run(ctx context.Context, b *bed.Bed) error {
	found, err := narrow.Run(ctx, b, b.Length(240*time.Second, 40*time.Second),
		narrow.Transfer{Name: "as it is", UDP: true, Beside: true},
		narrow.Transfer{Name: "adapt", UDP: true, Beside: true, Adapt: true})
	if err != nil {
		return err
	}
	b.Printf("arrived %.3f -> %.3f of what was sent; paper: less than 0.01 -> 0.67\n", found[0].ArrivedPart(), found[1].ArrivedPart())
	if err := narrow.Draw(b, "UDP through 28 kbit/s, beside TCP", found); err != nil {
		return err
	}
	return b.Write(found)
}
