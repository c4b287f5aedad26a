// Package egress measures how exactly, fairly and cheaply egress is limited. It compares no limit, HTB and
// netnice, on veth pairs that it makes itself. It needs root and the netnice program ($NETNICE, or bin/netnice).
//
//	go run ./lab bench egress -quick
//	go run ./lab bench egress -only 'netnice 1MB/s x16' -json figures.json
//
// See lab/README.md for what the figures mean.
package egress

import (
	"flag"

	"github.com/netnice/netnice/lab/internal/bench"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return program().Main(flags, args) }

func program() bench.Program {
	return bench.Program{
		Limiters: knownLimiters(), Axes: axes,
		Measure: measure, Judge: judge, Header: printHeader, Print: printCell,
		Legend: "d: the receiver delays acknowledgements (-quickack)",
	}
}
