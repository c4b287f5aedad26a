package share

import (
	"fmt"
	"time"
)

const (
	limiterHTB     = "htb"
	limiterNetnice = "netnice"
)

// cell is a measurement.
type cell struct {
	limiter  string
	rate     uint64 // bytes/s; for a line its capacity
	line     bool   // 98% of a line's capacity, behind a modem, for all users; else a limit of some
	programs int
	weighted bool
	rtt      time.Duration
	loss     float64
}

func allCells() (list []*cell) {
	add := func(c cell) {
		for _, limiter := range []string{limiterHTB, limiterNetnice} {
			one := c
			one.limiter = limiter
			list = append(list, &one)
		}
	}
	for _, rate := range []uint64{1_250_000, 12_500_000, 125_000_000} {
		for _, programs := range []int{2, 10, 100} {
			if rate < 12_500_000 && programs > 10 {
				continue // one segment of each of a thousand connections lasts more than a second
			}
			for _, weighted := range []bool{false, true} {
				add(cell{rate: rate, programs: programs, weighted: weighted})
			}
		}
	}
	for _, path := range []cell{{rtt: 20 * time.Millisecond}, {rtt: 100 * time.Millisecond}, {rtt: 20 * time.Millisecond, loss: 0.01}} {
		path.rate, path.programs, path.weighted = 12_500_000, 10, true
		add(path)
	}
	for _, c := range []cell{
		{rate: 1_250_000, programs: 2},
		{rate: 1_250_000, programs: 10, weighted: true},
		{rate: 12_500_000, programs: 2},
		{rate: 12_500_000, programs: 10},
		{rate: 12_500_000, programs: 10, weighted: true},
		{rate: 12_500_000, programs: 100},
		{rate: 125_000_000, programs: 10, weighted: true},
		{rate: 12_500_000, programs: 10, weighted: true, rtt: 20 * time.Millisecond},
		{rate: 12_500_000, programs: 10, weighted: true, rtt: 100 * time.Millisecond},
		{rate: 12_500_000, programs: 10, weighted: true, rtt: 20 * time.Millisecond, loss: 0.01},
	} {
		c.line = true
		add(c)
	}
	return list
}

// lineUsed is the part of a line's capacity that the programs get.
const lineUsed = 0.98

// limit returns the rate that programs may send at together, bytes/s.
func (c *cell) limit() float64 {
	if c.line {
		return lineUsed * float64(c.rate)
	}
	return float64(c.rate)
}

// connections returns the number of the i-th program: 1 to 64, fewer where the limit is too low for more.
func (c *cell) connections(i int) int {
	switch {
	case c.programs == 2 && c.rate > 1_250_000:
		return []int{1, 64}[i]
	case c.programs == 2:
		return []int{1, 16}[i]
	case c.rate <= 1_250_000:
		return []int{1, 4, 2}[i%3]
	case c.programs >= 100:
		return []int{1, 8, 2, 4}[i%4]
	}
	return []int{1, 64, 4, 16}[i%4]
}

// weight returns the weight of the i-th program: 1 to 100 beside the others.
func (c *cell) weight(i int) uint32 {
	switch {
	case !c.weighted:
		return 100
	case c.programs == 2:
		return []uint32{25, 100}[i]
	case c.rate <= 1_250_000:
		return []uint32{100, 50, 20}[i%3]
	}
	return []uint32{100, 50, 20, 10}[i%4]
}

// part returns the i-th program's part of the limit.
func (c *cell) part(i int) float64 {
	sum := 0.0
	for j := range c.programs {
		sum += float64(c.weight(j))
	}
	return float64(c.weight(i)) / sum
}

func (c *cell) name() string {
	name := fmt.Sprintf("%s %gMB/s x%d", c.limiter, float64(c.rate)/1e6, c.programs)
	if c.line {
		name += " line"
	}
	if c.weighted {
		name += " weighted"
	}
	if c.rtt > 0 {
		name += " " + c.rtt.String()
	}
	if c.loss > 0 {
		name += fmt.Sprintf(" %g%%", c.loss*100)
	}
	return name
}

// beside reports whether two cells differ only in the limiter.
func (c *cell) beside(d *cell) bool {
	other := *d
	other.limiter = c.limiter
	return *c == other
}
