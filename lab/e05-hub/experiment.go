// Package e05 re-runs netnice's Figure 6: all stations are on one hub of 10 Mbit/s. One server sends two files
// and echoes the bytes that a person types.
package e05

import (
	"context"
	"flag"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/typing"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

func run(ctx context.Context, b *bed.Bed) error {
	site, err := typing.Hub(b, 1)
	if err != nil {
		return err
	}
	return typing.Run(ctx, b, site, "Echo of a typed byte beside two downloads: a hub, one server",
		"mean 23.05 ms (sd 31.72) -> 0.49 (0.97)")
}
