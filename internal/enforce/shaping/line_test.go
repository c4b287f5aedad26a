package shaping

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/clock"
	"github.com/netnice/netnice/internal/enforce"
)

// TestQueueOnALine checks that a queue's rate lets the rate of the line through, for packets of the size seen before.
// The model (internal/clock) gives the bytes that the line carries for one packet.
func TestQueueOnALine(t *testing.T) {
	for _, c := range []struct {
		line   enforce.Line
		packet uint64
	}{
		{enforce.Line{}, 1500},
		{enforce.Line{OverheadBytes: 38, LeastBytes: 84}, 40},
		{enforce.Line{OverheadBytes: 30}, 1500},
		{enforce.Line{OverheadBytes: 10, Cells: true}, 1478},
		{enforce.Line{OverheadBytes: 10, Cells: true}, 92},
	} {
		const packets, rate = 10000, 1e6
		m := freshMix()
		m.update(bpf.Inflow{Bytes: packets * c.packet, LinkBytes: packets * (c.packet + linkHeader)}, m.at.Add(time.Second), rate)
		htb := classOf(rate, 0, m.on(c.line), 0).rate
		model := clock.Line{Overhead: uint64(c.line.OverheadBytes), Least: uint64(c.line.LeastBytes), Cells: c.line.Cells}
		perSec := float64(htb) / float64(c.packet+linkHeader)
		got := perSec * float64(model.Bytes(c.packet, 0))
		if got < rate*0.999 || got > rate*1.001 {
			t.Errorf("%+v, packets of %d bytes: the line carries %.0f bytes/s, want %.0f", c.line, c.packet, got, rate)
		}
	}
}
