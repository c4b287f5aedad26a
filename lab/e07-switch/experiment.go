// Package e07 re-runs netnice's Figure 8: two servers have 100 Mbit/s each to a switch, and the other
// stations share a segment of 10 Mbit/s behind it. One server sends two files, and the other one echoes the bytes
// that a person types.
package e07

import (
	"context"
	"flag"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/typing"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

func run(ctx context.Context, b *bed.Bed) error {
	site, err := typing.Switched(b)
	if err != nil {
		return err
	}
	return typing.Run(ctx, b, site, "Echo of a typed byte beside two downloads: a switch, two servers",
		"mean 49.16 ms (sd 204.5) -> 0.48 (1.35)")
}
