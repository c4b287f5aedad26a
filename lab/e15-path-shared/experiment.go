// Package e15 re-runs topp's Figure 5: the UDP transfer of e14-path next to a TCP connection of another
// host, which fills the bottleneck.
package e15

import (
	"flag"
	"fmt"
	"time"

	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return narrow.Main(flags, args, narrow.Experiment{
		Title: "UDP through 28 kbit/s, beside TCP", Over: 240 * time.Second,
		Transfers: []narrow.Transfer{{Name: "as it is", UDP: true, Beside: true}, {Name: "adapt", UDP: true, Beside: true, Adapt: true}},
		Compare: func(before, after narrow.Figures) string {
			return fmt.Sprintf("arrived %.3f -> %.3f of what was sent; paper: less than 0.01 -> 0.67", before.ArrivedPart(), after.ArrivedPart())
		},
	})
}
