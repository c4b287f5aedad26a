package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Path describes the treatment of packets in one direction. The zero value passes them on at once.
type Path struct {
	Delay time.Duration `json:"delay"` // without queueing
	// Jitter varies the delay between Delay and Delay+Jitter. Packets stay in order, as in a queue.
	Jitter time.Duration `json:"jitter"`
	Loss   float64       `json:"loss"`         // part of the packets that vanish at random, 0..1
	Rate   uint64        `json:"rate"`         // rate of the bottleneck, IP bytes/s; 0 = none
	Buffer int           `json:"buffer_bytes"` // buffer of the bottleneck; 0 = 100 ms of the rate
}

func (p Path) check() error {
	switch {
	case p.Delay < 0 || p.Jitter < 0 || p.Buffer < 0:
		return errors.New("delay, jitter and buffer must not be negative")
	case p.Loss < 0 || p.Loss > 1:
		return fmt.Errorf("loss is %v, want 0..1", p.Loss)
	case p.Delay+p.Jitter > 10*time.Second:
		return errors.New("delay and jitter must not exceed 10 s")
	}
	return nil
}

// leastBuffer holds a few packets whatever the rate.
const leastBuffer = 16 << 10

func (p Path) buffer() int {
	if p.Buffer > 0 {
		return p.Buffer
	}
	return max(int(p.Rate/10), leastBuffer)
}

// fate is the outcome for a packet.
type fate int

const (
	passes fate = iota
	lost        // at random
	full        // the bottleneck's buffer had no room
)

// travel decides on packets of one direction, in their order. It is pure: the
// time is passed in, in nanoseconds.
type travel struct {
	path Path
	rand *rand.Rand

	free int64 // time at which the bottleneck has sent everything
	last int64 // arrival time of the packet before

	// Jitter follows straight lines from one random point to the next.
	from, to     time.Duration
	begin, until int64
}

func newTravel(p Path, seed, stream uint64) *travel {
	return &travel{path: p, rand: rand.New(rand.NewPCG(seed, stream))}
}

// packet decides on a packet of that many IP bytes that enters now, and returns its arrival time. queued is the
// backlog of the bottleneck with this packet, in bytes.
func (t *travel) packet(now int64, bytes int) (f fate, due int64, queued int) {
	due = now
	if t.path.Rate > 0 {
		start := max(t.free, now)
		waiting := int(float64(start-now) / 1e9 * float64(t.path.Rate))
		if waiting+bytes > t.path.buffer() {
			return full, 0, waiting
		}
		queued = waiting + bytes
		t.free = start + int64(float64(bytes)/float64(t.path.Rate)*1e9)
		due = t.free
	}
	if t.path.Loss > 0 && t.rand.Float64() < t.path.Loss {
		return lost, 0, queued
	}
	due += int64(t.path.Delay + t.jitter(now))
	due = max(due, t.last)
	t.last = due
	return passes, due, queued
}

// jitter returns the part of Jitter at that time. Its slope is at most one half, so packets that enter one after the
// other do not pile up.
func (t *travel) jitter(now int64) time.Duration {
	if t.path.Jitter == 0 {
		return 0
	}
	for now >= t.until {
		t.from = t.to
		t.to = time.Duration(t.rand.Int64N(int64(t.path.Jitter) + 1))
		t.begin = t.until
		if t.begin == 0 || now-t.begin > int64(10*t.path.Jitter) {
			t.begin = now
		}
		t.until = t.begin + int64(2*t.path.Jitter)
	}
	return t.from + time.Duration(float64(t.to-t.from)*float64(now-t.begin)/float64(t.until-t.begin))
}
