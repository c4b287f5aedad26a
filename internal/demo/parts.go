package demo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// connections shows each connection to a port; full is the rate of the longest bar, 0 = that of the fastest one.
func (p *program) connections(name string, port uint16, full float64) func(from, to testbed.Instant) []Part {
	return func(from, to testbed.Instant) []Part {
		rates := p.stage.rx.ConnGoodputs(port, from, to)
		var out []Part
		for i, r := range rates {
			out = append(out, ratePart(fmt.Sprintf("%s %d", name, i+1), r*ipFactor, full))
		}
		return out
	}
}

// programs shows each program by its port.
func (p *program) programs(full float64, names map[uint16]string) func(from, to testbed.Instant) []Part {
	ports := slices.Sorted(maps.Keys(names))
	return func(from, to testbed.Instant) []Part {
		var out []Part
		for _, port := range ports {
			out = append(out, ratePart(names[port], p.stage.rx.Goodput(port, from, to)*ipFactor, full))
		}
		return out
	}
}

func ratePart(name string, rate, full float64) Part {
	part := Part{Name: name, Text: formatRate(rate), Fraction: 1}
	if full > 0 {
		part.Fraction = min(rate/full, 1)
	}
	return part
}

// roundTripPart shows a round trip on a logarithmic bar from 10 us to 1 s.
func roundTripPart(name string, rtt time.Duration, rate float64) Part {
	part := Part{Name: name, Text: "-"}
	if rtt > 0 {
		part.Fraction = max(math.Log10(rtt.Seconds()/10e-6)/5, 0.01)
		part.Text = fmt.Sprintf("%s at %s", formatTrip(rtt), formatRate(rate))
	}
	return part
}
