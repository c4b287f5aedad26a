// Package ingress measures how exactly, fairly and cheaply ingress is limited at the receiver. It compares no
// limit, HTB behind an ifb, policing, and netnice, over pairs of namespaces that it makes itself. It needs root and
// the netnice program ($NETNICE, or bin/netnice).
//
//	go run ./lab bench ingress -quick
//	go run ./lab bench ingress -only 'ifb 1MB/s x4' -json figures.json
//
// See lab/README.md for what the figures mean.
package ingress

import (
	"flag"

	"github.com/netnice/netnice/lab/internal/bench"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return program().Main(flags, args) }

func program() bench.Program {
	return bench.Program{
		Limiters: knownLimiters(), Axes: axes,
		Measure: measure, Refuses: refuses, Judge: judge, Header: printHeader, Print: printCell,
		Legend: "drop: by the limiter, and refused by the receiver's TCP",
	}
}
