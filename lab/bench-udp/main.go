// Command bench-udp measures how exactly, evenly and cheaply UDP is limited, sent and received. It measures UDP
// alone and next to TCP under the same limit. It compares no limit, HTB, TBF and netnice, between two namespaces that
// it makes itself. It needs root and the netnice program ($NETNICE, or bin/netnice).
//
//	go run ./lab/bench-udp -quick
//	go run ./lab/bench-udp -only 'netnice 1MB/s mix' -json figures.json
//
// See lab/README.md for what the figures mean.
package main

import (
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
	"github.com/netnice/netnice/lab/internal/datagram"
)

func main() {
	datagram.MaybeRun()
	program().Main()
}

func program() bench.Program {
	s := new(stand)
	return bench.Program{
		Name: "bench-udp", Limiters: knownLimiters(), Axes: axes, Near: true, Interval: 2500 * time.Millisecond,
		Open: s.open, Measure: s.measure, Judge: s.judge, Header: printHeader, Print: s.print,
		Legend: "in call: the part of the time that the sender was in its calls, 1 = blocked",
	}
}
