package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// What a cell limits with.
const (
	limiterNone    = "none"
	limiterHTB     = "htb"     // on the device: all of its programs together
	limiterTBF     = "tbf"     // likewise
	limiterTrickle = "trickle" // a library put before the C library: one connection of a Python program
	limiterNetnice = "netnice"
)

func knownLimiters() []string {
	return []string{limiterNone, limiterHTB, limiterTBF, limiterTrickle, limiterNetnice}
}

// cell is one measurement.
type cell struct {
	limiter    string
	rate       uint64 // bytes/s; 0 = no limit
	conns      int
	congestion string
	// shares: two programs of one user under one limit, one with conns
	// connections and one with a single one.
	shares bool
	ipv6   bool
	// The path: a veth pair if both are 0, else a relay, half of the round
	// trip each way, losing that part of what is sent, at wireRate.
	rtt      time.Duration
	loss     float64
	interval time.Duration
}

// wireRate is what a path with distance carries, IP bytes/s: far above most
// limits, but not beyond what this machine can relay.
const wireRate = 125_000_000

func (c cell) distant() bool { return c.rtt > 0 || c.loss > 0 }

// settle is the time after which figures are steady: a second, or what slow
// start needs to reach the limit (or a tenth of the path without one), with a
// window that grows by 1.6 in a round trip from ten segments on.
func (c cell) settle() time.Duration {
	rate := float64(c.rate)
	if rate == 0 {
		rate = wireRate / 10
	}
	const firstWindow, growth = 14480, 1.6
	windows := rate / float64(c.conns) * c.rtt.Seconds() / firstWindow
	if windows <= 1 {
		return time.Second
	}
	rounds := math.Ceil(math.Log(windows)/math.Log(growth)) + 3
	return max(time.Second, time.Duration(rounds)*c.rtt)
}

// axes are what cells are made of, all combinations.
type axes struct {
	limiters   []string
	rates      []uint64
	conns      []int
	congestion []string
	families   []bool // IPv6?
	rtts       []time.Duration
	losses     []float64
	shares     bool
}

func (a axes) cells() []cell {
	var out []cell
	for _, loss := range a.losses {
		for _, rtt := range a.rtts {
			for _, rate := range a.rates {
				for _, n := range a.conns {
					for _, cc := range a.congestion {
						for _, v6 := range a.families {
							for _, l := range a.limiters {
								out = append(out, cell{limiter: l, rate: rate, conns: n, congestion: cc, shares: a.shares, ipv6: v6, rtt: rtt, loss: loss})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// cells makes the matrix; what is compared stands together.
func (o options) cells() []cell {
	var all []cell
	seen := make(map[string]bool)
	for _, a := range o.axes() {
		for _, c := range a.cells() {
			c.ipv6 = c.ipv6 || o.ipv6
			if c.limiter == limiterNone {
				c.rate = 0
			}
			c.interval = o.interval + c.settle() - time.Second
			if c.rate > 0 && c.rate < 1e6 {
				c.interval += o.interval
			}
			chosen := slices.Contains(o.limiters, c.limiter) && (o.only == nil || o.only.MatchString(c.name()))
			if chosen && !seen[c.name()] && c.sensible() {
				seen[c.name()] = true
				all = append(all, c)
			}
		}
	}
	return all
}

// sensible leaves out what the path cannot carry or the limiter not be used for.
func (c cell) sensible() bool {
	if c.distant() && c.rate > wireRate {
		return false
	}
	return c.limiter != limiterTrickle || c.conns == 1 && c.congestion == "cubic" && !c.shares && !c.ipv6 && c.rate >= 16e3 && c.rate <= 10e6
}

// axes of the run that was asked for.
func (o options) axes() []axes {
	const ms = time.Millisecond
	var (
		near   = []time.Duration{0}
		v4     = []bool{false}
		none   = []string{limiterNone}
		two    = []string{limiterHTB, limiterNetnice}
		four   = []string{limiterHTB, limiterTBF, limiterTrickle, limiterNetnice}
		both   = []string{"cubic", "bbr"}
		cubic  = []string{"cubic"}
		clean  = []float64{0}
		losing = []float64{0.01}
		far    = []time.Duration{20 * ms, 100 * ms, 300 * ms}
		ends   = []int{1, 16}
		all    = []uint64{1, 16e3, 128e3, 1e6, 10e6, 100e6, 1250e6}
	)
	if o.rtts != nil {
		far = o.rtts
	}
	if o.losses != nil {
		clean, losing = o.losses, o.losses
	}
	shares := axes{two, []uint64{1e6, 10e6, 100e6}, []int{16}, cubic, v4, near, []float64{0}, true}
	switch {
	case o.quick:
		shares.rates = []uint64{10e6}
		return []axes{
			{none, []uint64{0}, ends, cubic, v4, near, []float64{0}, false},
			{two, []uint64{1e6, 100e6}, ends, cubic, v4, near, []float64{0}, false},
			shares,
			{two, []uint64{1e6}, []int{4}, cubic, v4, []time.Duration{100 * ms}, []float64{0}, false},
		}
	case o.all:
		rtts, losses := append(slices.Clone(near), far...), []float64{0, 0.01}
		if o.losses != nil {
			losses = o.losses
		}
		conns, cc, families := []int{1, 4, 16, 64}, []string{"cubic", "bbr", "reno"}, []bool{false, true}
		return []axes{
			{none, []uint64{0}, conns, cc, families, rtts, losses, false},
			{four, all, conns, cc, families, rtts, losses, false},
			shares,
		}
	case o.rtts != nil || o.losses != nil: // the distances that were asked for
		return []axes{
			{none, []uint64{0}, ends, both, v4, far, clean, false},
			{two, []uint64{128e3, 1e6, 10e6, 100e6}, ends, both, v4, far, clean, false},
		}
	}
	return []axes{ // a sample of what -all has
		{none, []uint64{0}, ends, both, v4, near, clean, false},
		{[]string{limiterNetnice}, []uint64{1, 16e3}, []int{1}, cubic, v4, near, clean, false},
		{two, []uint64{128e3}, []int{4}, both, v4, near, clean, false},
		{four, []uint64{1e6, 10e6}, ends, cubic, v4, near, clean, false},
		{two, []uint64{1e6, 100e6, 1250e6}, ends, both, v4, near, clean, false},
		{two, []uint64{10e6}, []int{64}, []string{"reno"}, []bool{true}, near, clean, false},
		shares,
		{two, []uint64{1e6, 10e6}, []int{4}, cubic, v4, far, clean, false},
		{two, []uint64{1e6}, []int{1}, []string{"bbr"}, v4, far, clean, false},
		{two, []uint64{100e6}, []int{4}, cubic, []bool{true}, far[:1], clean, false},
		{none, []uint64{0}, []int{16}, []string{"bbr"}, v4, far[:1], losing, false},
		{two, []uint64{1e6}, []int{16}, []string{"bbr"}, v4, far[:min(2, len(far))], losing, false},
	}
}

// name is what -only matches.
func (c cell) name() string {
	name := c.limiter
	if c.rate > 0 {
		name += " " + rateText(c.rate)
	}
	name += fmt.Sprintf(" x%d", c.conns)
	if c.shares {
		name += "+1"
	}
	name += " " + c.congestion
	if c.ipv6 {
		name += " IPv6"
	}
	if c.distant() {
		name += fmt.Sprintf(" %v", c.rtt)
	}
	if c.loss > 0 {
		name += fmt.Sprintf(" %g%%", c.loss*100)
	}
	return name
}

func rateText(bytesPerSec uint64) string {
	switch {
	case bytesPerSec >= 1e9:
		return fmt.Sprintf("%gGB/s", float64(bytesPerSec)/1e9)
	case bytesPerSec >= 1e6:
		return fmt.Sprintf("%gMB/s", float64(bytesPerSec)/1e6)
	case bytesPerSec >= 1e3:
		return fmt.Sprintf("%gKB/s", float64(bytesPerSec)/1e3)
	}
	return fmt.Sprintf("%dB/s", bytesPerSec)
}

// sameGroup says whether the two have the same rate, kind and path.
func (c cell) sameGroup(d cell) bool {
	return c.rate == d.rate && c.shares == d.shares && c.rtt == d.rtt && c.loss == d.loss
}

// perCell is what a cell takes beside its traffic: namespaces, processes.
const perCell = 350 * time.Millisecond

func estimate(cells []cell) time.Duration {
	sum := time.Second
	for _, c := range cells {
		sum += c.interval + perCell
	}
	return sum
}

func uses(cells []cell, limiter string) bool {
	return slices.ContainsFunc(cells, func(c cell) bool { return c.limiter == limiter })
}
