package shaping

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
)

// clockOf is a clock of a limit. Its time also goes on without its virtual time, as when bytes are paid that left early.
type clockOf struct {
	bpf.Clock
	limit uint64
	now   time.Duration
}

func (c *clockOf) shared(d time.Duration, weight uint32) {
	c.Vtime += uint64(d.Seconds() * float64(c.limit) / float64(weight) * (1 << virtualShift))
	c.paid(d)
}

func (c *clockOf) paid(d time.Duration) {
	c.TimeNs += uint64(d)
	c.now += d
}

// due is what a class may send that is as far ahead as it should be with this part of the limit.
func (c *clockOf) due(s *share, part float64) float64 {
	k := bpf.Class{Weight: usualWeight}
	k.Finish = c.Vtime + uint64(max(shareAhead.Seconds()*float64(c.limit)*part, 2*usualPacket)/usualWeight*(1<<virtualShift))
	return s.due(c.Clock, k, c.limit, uint64(c.now))
}

// Under a low limit, only a payment for a small packet may fall between two samples. That is not what the class is due: at a
// hundredth of the limit, one packet kept the others waiting for 14 s.
func TestShareOfALowLimit(t *testing.T) {
	for _, limit := range []uint64{1000, 10_000, 30_000} {
		c, s := &clockOf{limit: limit}, &share{}
		packet := time.Duration(float64(usualPacket) / float64(limit) * float64(time.Second))
		least := float64(limit)
		c.due(s, 0.5)
		for range 40 {
			c.shared(packet, 2*usualWeight)
			least = min(least, c.due(s, 0.5))
			c.paid(packet / 12)
			least = min(least, c.due(s, 0.5))
		}
		require.GreaterOrEqual(t, least, 0.35*float64(limit), "half of %d is due, less a thirteenth", limit)
	}
}

// However many others send, no packet waits for long at a rate that may be raised meanwhile.
func TestShareOfManyIsSoonRaised(t *testing.T) {
	const limit = 10_000
	c, s := &clockOf{limit: limit}, &share{}
	for range 40 {
		c.shared(shareLook, 100*usualWeight)
		rate := c.due(s, 0.01)
		require.GreaterOrEqual(t, rate, usualPacket/sharePacket.Seconds())
		require.LessOrEqual(t, rate, float64(limit))
	}
	c.now += shareSpan // and nothing was charged
	require.InDelta(t, limit, c.due(s, 1), limit/4)
}

func TestShareFollowsOthers(t *testing.T) {
	const limit = 10_000_000
	c, s := &clockOf{limit: limit}, &share{}
	for range 20 {
		c.shared(shareLook, usualWeight)
		c.due(s, 1)
	}
	require.InDelta(t, limit, c.due(s, 1), limit/20)
	for range 3 {
		c.shared(shareLook, 4*usualWeight)
		c.due(s, 0.25)
	}
	require.InDelta(t, limit/4, c.due(s, 0.25), limit/40)
}

func TestShareOfAFreshClock(t *testing.T) {
	c, s := &clockOf{limit: 1_000_000}, &share{}
	require.InDelta(t, 1_000_000, c.due(s, 1), 250_000)
	require.True(t, s.came(1))
	for range shareQuiet + 1 {
		s.came(1)
	}
	require.Empty(t, s.readings)
}
