// Package e14 re-runs topp's Table I: a UDP transfer without a congestion control through a token bucket of 28
// kbit/s, unchanged and paced at the path's capacity. The sender offers ten times as much, as the paper's TFTP
// without its waiting did. A third transfer has a fixed limit at the path's rate, which sends no probes.
package e14

import (
	"flag"
	"fmt"
	"time"

	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return narrow.Main(flags, args, narrow.Experiment{
		Title: "UDP through 28 kbit/s", Over: 180 * time.Second,
		Copies: 4,
		Transfers: []narrow.Transfer{
			{Name: "as it is", UDP: true},
			{Name: "adapt", UDP: true, Adapt: true},
			{Name: "a limit at its rate", UDP: true, Limit: narrow.PathRate},
		},
		Compare: func(before, after narrow.Figures) string {
			return fmt.Sprintf("adapt %.3f of as it is; paper: 24.56 -> 25.58 kbit/s (1.042), in runs of 415 to 428 and 400 to 407 s", after.BitsPerSec/before.BitsPerSec)
		},
	})
}
