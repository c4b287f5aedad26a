// Package e06 re-runs netnice's Figure 7: all stations are on one hub of 10 Mbit/s. One server sends
// two files, and another one echoes the bytes that a person types.
package e06

import (
	"context"
	"flag"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/typing"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

func run(ctx context.Context, b *bed.Bed) error {
	site, err := typing.Hub(b, 2)
	if err != nil {
		return err
	}
	return typing.Run(ctx, b, site, "Echo of a typed byte beside two downloads: a hub, two servers",
		"mean 9.19 ms (sd 16.75) -> 0.37 (0.45)")
}
