package clock

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// The kernel's line overhead is that of the model, to the byte.
func TestLineIsTheModels(t *testing.T) {
	r := open(t)
	rapid.Check(t, func(t *rapid.T) {
		l := Line{
			Overhead: rapid.Uint64Range(0, 255).Draw(t, "overhead"), Least: rapid.Uint64Range(0, 1500).Draw(t, "least"),
			Cells: rapid.Bool().Draw(t, "cells"),
		}
		bytes, segment := rapid.Uint64Range(0, 1<<17).Draw(t, "bytes"), rapid.Uint64Range(0, 1<<16).Draw(t, "segment")
		if segment < 28 { // no packet is smaller
			segment = 0
		}
		segments := uint32(segment)
		if packets := rapid.Uint32Range(0, 3000).Draw(t, "packets"); rapid.Bool().Draw(t, "counted") {
			segments, segment = packets|1<<31, 0
			if packets > 0 {
				segment = (bytes + uint64(packets) - 1) / uint64(packets)
			}
		}
		got, err := r.Line(clocktest.Line{
			Bytes: bytes, Segments: segments, Overhead: uint8(l.Overhead), Least: uint16(l.Least), Cells: bit(l.Cells),
		})
		if err != nil {
			t.Fatalf("%v", err)
		}
		if want := l.Bytes(bytes, segment); got != want {
			t.Fatalf("%+v carries %d bytes for %d in packets of %d, want %d", l, got, bytes, segment, want)
		}
	})
}

func bit(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// The overhead of known lines is right.
func TestLineModel(t *testing.T) {
	for _, c := range []struct {
		line                 Line
		bytes, segment, want uint64
	}{
		{Line{}, 1500, 0, 1500},
		{Line{Overhead: 18, Least: 64}, 40, 0, 64},
		{Line{Overhead: 38, Least: 84}, 1500, 0, 1538},
		{Line{Overhead: 30}, 4500, 1500, 4590},
		{Line{Overhead: 30}, 4501, 1500, 4621},
		{Line{Overhead: 10, Cells: true}, 1478, 0, 31 * 53}, // 1488 bytes are 31 cells
		{Line{Overhead: 10, Cells: true}, 1479, 0, 32 * 53},
		{Line{Overhead: 40, Cells: true}, 40, 0, 2 * 53},
	} {
		if got := c.line.Bytes(c.bytes, c.segment); got != c.want {
			t.Errorf("%+v carries %d bytes for %d in packets of %d, want %d", c.line, got, c.bytes, c.segment, c.want)
		}
	}
}
