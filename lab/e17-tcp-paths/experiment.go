// Package e17 re-runs topp's Figures 10 to 12: two hosts send by TCP through a token bucket of 28 kbit/s,
// unchanged, and both paced at the path's capacity. Further transfers do the same with the TCP of the paper's time.
package e17

import (
	"flag"
	"fmt"
	"time"

	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return narrow.Main(flags, args, narrow.Experiment{
		Title: "Two TCP transfers through 28 kbit/s", Over: 300 * time.Second,
		Copies: 4,
		Transfers: []narrow.Transfer{
			{Name: "as they are", Beside: true},
			{Name: "both adapt", Beside: true, Adapt: true, AdaptBeside: true},
			{Name: "as they are, TCP of 2001", Beside: true, TCPOf2001: true},
			{Name: "both adapt, TCP of 2001", Beside: true, Adapt: true, AdaptBeside: true, TCPOf2001: true},
		},
		Compare: func(before, after narrow.Figures) string {
			share := after.BitsPerSec / (after.BitsPerSec + after.BesideBits)
			return fmt.Sprintf("%s; paper: 2465 -> 1661 s (0.674), 2748 -> 2348 packets (0.854)\nshares with both: %.3f : %.3f; paper: fair (a figure without numbers)",
				narrow.Compare(before, after), share, 1-share)
		},
	})
}
