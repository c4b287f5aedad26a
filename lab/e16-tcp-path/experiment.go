// Package e16 re-runs topp's Figures 8 and 9: a TCP transfer through a token bucket of 28 kbit/s, next to a
// TCP connection of another host without pacing. The transfer is unchanged, or paced at the path's capacity. The
// paper sent one file. The experiment measures for a fixed time, and computes the time for the file from it.
package e16

import (
	"flag"
	"time"

	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return narrow.Main(flags, args, narrow.Experiment{
		Title: "TCP through 28 kbit/s, beside TCP", Over: 300 * time.Second,
		Copies: 4,
		Transfers: []narrow.Transfer{
			{Name: "as it is", Beside: true},
			{Name: "adapt", Beside: true, Adapt: true},
		},
		Compare: func(before, after narrow.Figures) string {
			return narrow.Compare(before, after) + "; paper: 2465 -> 2457 s (0.997), 2748 -> 2651 packets (0.965)"
		},
	})
}
