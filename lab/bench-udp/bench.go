// Package udp measures how exactly, evenly and cheaply UDP is limited, sent and received. It measures UDP
// alone and next to TCP under the same limit. It compares no limit, HTB, TBF and netnice, between two namespaces that
// it makes itself. It needs root and the netnice program ($NETNICE, or bin/netnice).
//
//	go run ./lab bench udp -quick
//	go run ./lab bench udp -only 'netnice 1MB/s mix' -json figures.json
//
// See lab/README.md for what the figures mean.
package udp

import (
	"flag"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return program().Main(flags, args)
}

func program() bench.Program {
	s := new(stand)
	return bench.Program{
		Limiters: knownLimiters(), Axes: axes, Near: true, Interval: 2500 * time.Millisecond,
		Open: s.open, Measure: s.measure, Judge: s.judge, Header: printHeader, Print: s.print,
		Legend: "in call: the part of the time that the sender was in its calls, 1 = blocked",
	}
}
