package adapt

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// yield runs a law over the link for the traffic of a sender with a window.
func (l *link) yield(law *Law, w *windowed, over time.Duration) {
	const every = 50 * time.Millisecond
	allowed := law.State().Rate
	for end := l.now + over; l.now < end; {
		before, lost := l.sent, l.lost
		for probed := l.now; l.now-probed < every; {
			rtt := l.roundTrip()
			wants := w.bytes / rtt
			l.step(math.Min(wants, allowed))
			if wants <= allowed { // otherwise the rate, and not the window, holds it back
				w.grow(rtt)
			}
			if l.lost > lost {
				w.halve(l.now, l.base+time.Duration(rtt*1e9))
			}
			lost = l.lost
		}
		allowed = law.Step(l.probe(), (l.sent-before)/every.Seconds())
	}
}

// Traffic that itself slows down at a loss reaches the share on average beside traffic that does the same. A ceiling
// at the share leaves it less.
func TestWhatYieldsHasItsShare(t *testing.T) {
	for _, base := range []time.Duration{2 * time.Millisecond, 40 * time.Millisecond} {
		for _, yields := range []bool{false, true} {
			l := &link{capacity: 1.25e6, buffer: 30e3, base: base, elastic: true}
			for l.now < 5*time.Second {
				l.step(0)
			}
			c := config(0.6e6)
			c.Yields = yields
			law, w := New(c), &windowed{bytes: 4 * packet}
			l.yield(law, w, 20*time.Second)
			l.reset()
			l.yield(law, w, 60*time.Second)
			used := l.used / l.offered
			t.Logf("over %v, it is known: %v: %.3f ours, %.3f theirs, raised %.2f, %+v", base, yields, used, l.theirs/l.offered, law.raised, law.State())
			if !yields {
				require.Less(t, used, c.Share-0.02)
				continue
			}
			require.InDelta(t, c.Share, used, 0.02)
			require.Greater(t, l.theirs/l.offered, 0.35)
		}
	}
}

// Traffic that does not yield after all, such as a flood, gets no more than the share.
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
