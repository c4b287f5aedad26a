package adapt

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// yielding is a sender with a window, which it halves at a loss, that is paced.
type yielding struct {
	window float64 // bytes under way
	rested time.Duration
}

// follow runs a law over the link for what it sends.
func (y *yielding) follow(l *link, law *Law, over time.Duration) {
	const every = 50 * time.Millisecond
	allowed, sent := law.State().Rate, 0.0
	for end := l.now + over; l.now < end; {
		before, lost := l.sent, l.lost
		for probed := l.now; l.now-probed < every; {
			rtt := l.base.Seconds() + l.queue/l.capacity + 0.001
			rate := math.Min(y.window/rtt, allowed)
			l.step(rate)
			if rate >= y.window/rtt { // else it is not the window that it waits for
				y.window += packet * tick.Seconds() / rtt
			}
			if l.lost > lost && l.now-y.rested > l.base+time.Duration(rtt*1e9) {
				y.window, y.rested = max(y.window/2, 2*packet), l.now
			}
			lost = l.lost
		}
		sent = (l.sent - before) / every.Seconds()
		allowed = law.ceiling(law.Step(l.probe(), sent))
	}
}

// What gives way to loss by itself has the share on average beside what does likewise, and not more of it
// for being many; a ceiling at the share would leave it less.
func TestWhatYieldsHasItsShare(t *testing.T) {
	for _, base := range []time.Duration{2 * time.Millisecond, 40 * time.Millisecond} {
		for _, yields := range []bool{false, true} {
			l := &link{capacity: 1.25e6, buffer: 30e3, base: base, elastic: true}
			for l.now < 5*time.Second {
				l.step(0)
			}
			c := config(0.6e6)
			c.Yields = yields
			law, y := New(c), &yielding{window: 4 * packet}
			y.follow(l, law, 20*time.Second)
			l.reset()
			y.follow(l, law, 60*time.Second)
			used := l.used / l.offered
			t.Logf("over %v, it is known: %v: %.3f ours, %.3f theirs, raised %.2f, %+v", base, yields, used, l.theirs/l.offered, law.raised, law.State())
			if yields {
				require.InDelta(t, c.Share, used, 0.02)
				require.Greater(t, l.theirs/l.offered, 0.35)
			}
		}
	}
}

// What does not yield after all, a flood, has no more than the share.
func TestWhatDoesNotYieldIsNotRaised(t *testing.T) {
	l := &link{capacity: 1.25e6, buffer: 125e3, base: 20 * time.Millisecond, elastic: true}
	for l.now < 5*time.Second {
		l.step(0)
	}
	c := config(0.6e6)
	c.Yields = true
	law := New(c)
	l.follow(law, 20*time.Second, 0.1e6) // little for a while
	l.follow(law, 20*time.Second, math.Inf(1))
	l.reset()
	l.follow(law, 30*time.Second, math.Inf(1))
	t.Logf("%.3f ours, %.3f theirs, raised %.2f", l.used/l.offered, l.theirs/l.offered, law.raised)
	require.InDelta(t, c.Share, l.used/l.offered, 0.1)
	require.InDelta(t, 1, law.raised, 0.05)
}
