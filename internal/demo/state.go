package demo

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/units"
)

// State is the complete input of a picture of the demo, at one moment. Its slices never change once a State with
// them was shown.
type State struct {
	Elapsed time.Duration
	Planned time.Duration // length of the whole demo
	Scene   int           // index into Scenes
	Scenes  []Scene
	Limit   float64       // in force now, IP bytes per second; 0 = none
	Rates   []float64     // received rates, IP bytes per second, per tick
	Tick    time.Duration // between Rates
	Parts   []Part        // present contributors
	Figures []Figure
	Leaving bool // the demo removes its objects
	Done    bool
}

// Scene is a step of the story.
type Scene struct {
	Title    string
	Start    time.Duration // its start, valid after it
	Commands []string      // commands of the scene
}

// Part is a connection or a program in the picture.
type Part struct {
	Name     string
	Text     string  // its rate or round trip
	Fraction float64 // part of the longest possible bar, 0..1
}

// formatRate prints a rate with three digits.
func formatRate(bytesPerSec float64) string {
	return units.FormatRate(uint64(max(bytesPerSec, 0)), units.Bytes)
}

// exactRate prints a rate with four digits, since its tolerance is 1%.
func exactRate(bytesPerSec float64) string {
	switch {
	case bytesPerSec >= 1e9:
		return fmt.Sprintf("%.3f GB/s", bytesPerSec/1e9)
	case bytesPerSec >= 10e6:
		return fmt.Sprintf("%.2f MB/s", bytesPerSec/1e6)
	}
	return fmt.Sprintf("%.3f MB/s", bytesPerSec/1e6)
}

// formatTrip prints a round trip.
func formatTrip(d time.Duration) string {
	switch ms := d.Seconds() * 1e3; {
	case ms < 1:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}
