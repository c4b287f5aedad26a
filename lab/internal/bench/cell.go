package bench

import (
	"fmt"
	"math"
	"time"
)

// All benches have these limiters.
const (
	None    = "none"
	Trickle = "trickle" // a library preloaded before the C library: one connection of a Python program
	Netnice = "netnice"
)

// Cell is one measurement.
type Cell struct {
	Limiter    string
	Rate       uint64 // bytes/s; 0 = no limit
	Conns      int
	Congestion string
	// Shares means two programs of one user under one limit: one with Conns connections and one with a single one.
	Shares bool
	IPv6   bool
	// The path is a veth pair if RTT and Loss are 0. Otherwise it is a relay at WireRate, with half of the round
	// trip each way, that loses this part of the packets.
	RTT      time.Duration
	Loss     float64
	Line     uint64 // rate of the path instead, bytes/s, behind a buffer of 0.1 s; 0 = as above
	Interval time.Duration
	Datagrams
}

// Datagrams describes UDP traffic that replaces TCP or competes with it.
type Datagrams struct {
	PayloadBytes int // payload of each datagram; 0 = none
	Way          Way
	Offered      float64 // over the limit; 0 = as fast as it may
}

// Way is the relation of datagrams to the limit.
type Way string

// These are the ways of datagrams.
const (
	Up   Way = "up"
	Down Way = "down"
	Mix  Way = "mix" // sent, beside a TCP connection that takes all it can, under one limit
)

// WireRate is the rate of a path with distance, IP bytes/s: far above most limits, but within the capacity of this
// machine's relay.
const WireRate = 125_000_000

// Distant reports whether a relay connects sender and receiver.
func (c Cell) Distant() bool { return c.RTT > 0 || c.Loss > 0 || c.Line > 0 }

// Settle returns the time after which figures are steady. It is a second, or the time that slow start needs to reach
// the limit (or a tenth of the path without one). The window grows by 1.6 in a round trip from ten segments on.
func (c Cell) Settle() time.Duration {
	if c.PayloadBytes > 0 {
		return 1500 * time.Millisecond // also for a queue that netnice makes on demand
	}
	rate := float64(c.Rate)
	if rate == 0 {
		rate = WireRate / 10
	}
	const firstWindow, growth = 14480, 1.6
	windows := rate / float64(c.Conns) * c.RTT.Seconds() / firstWindow
	if windows <= 1 {
		return time.Second
	}
	rounds := math.Ceil(math.Log(windows)/math.Log(growth)) + 3
	return max(time.Second, time.Duration(rounds)*c.RTT)
}

// sensible excludes rates that the path cannot carry, and cases for which the limiter does not work.
func (c Cell) sensible() bool {
	if c.Distant() && c.Rate > WireRate {
		return false
	}
	return c.Limiter != Trickle || c.Conns == 1 && c.Congestion == "cubic" && !c.Shares && !c.IPv6 && c.Rate >= 16e3 && c.Rate <= 10e6
}

// Name returns the text that -only matches.
func (c Cell) Name() string {
	name := c.Limiter
	if c.Rate > 0 {
		name += " " + rateText(c.Rate)
	}
	if c.PayloadBytes > 0 {
		return name + c.name(c.IPv6)
	}
	name += fmt.Sprintf(" x%d", c.Conns)
	if c.Shares {
		name += "+1"
	}
	name += " " + c.Congestion
	if c.IPv6 {
		name += " IPv6"
	}
	if c.Distant() {
		name += fmt.Sprintf(" %v", c.RTT)
	}
	if c.Loss > 0 {
		name += fmt.Sprintf(" %g%%", c.Loss*100)
	}
	return name
}

func (d Datagrams) name(v6 bool) string {
	name := fmt.Sprintf(" %s %dB", d.Way, d.PayloadBytes)
	if v6 {
		name += " IPv6"
	}
	if d.Way == Mix {
		name += fmt.Sprintf(" %gx", d.Offered)
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
func (c Cell) sameGroup(d Cell) bool {
	return c.Rate == d.Rate && c.Shares == d.Shares && c.RTT == d.RTT && c.Loss == d.Loss && c.Way == d.Way
}
