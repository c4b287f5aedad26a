package enforce

import (
	"testing"

	"github.com/netnice/netnice/internal/clock"
)

// The line of a queue carries for a packet what the model's line does.
func TestLineBytes(t *testing.T) {
	for _, l := range []Line{{}, {OverheadBytes: 18, LeastBytes: 64}, {OverheadBytes: 30}, {OverheadBytes: 40, Cells: true}, {LeastBytes: 84, Cells: true}} {
		model := clock.Line{Overhead: uint64(l.OverheadBytes), Least: uint64(l.LeastBytes), Cells: l.Cells}
		for _, packet := range []uint64{1, 28, 40, 47, 48, 49, 92, 576, 1478, 1500, 9000} {
			if got, want := l.Bytes(float64(packet)), float64(model.Bytes(packet, 0)); got != want {
				t.Errorf("%+v: %v bytes for a packet of %d, want %v", l, got, packet, want)
			}
		}
	}
}
