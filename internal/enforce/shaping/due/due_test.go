package due

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
)

const usual = 100 // weight of a program

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
func (c *clockOf) due(p *Progress, part float64) float64 {
	k := bpf.Class{Weight: usual}
	k.Finish = c.Vtime + uint64(max(ahead.Seconds()*float64(c.limit)*part, 2*Packet)/usual*(1<<virtualShift))
	return p.Went(c.Clock, c.limit, uint64(c.now)).Due(c.Clock, k, usual, 0, c.limit, uint64(c.now))
}

// Under a low limit, only a payment for a small packet may fall between two samples. That is not what the class is due:
// at a hundredth of the limit, one packet kept the others waiting for 14 s.
func TestShareOfALowLimit(t *testing.T) {
	for _, limit := range []uint64{1000, 10_000, 30_000} {
		c, p := &clockOf{limit: limit}, &Progress{}
		packet := time.Duration(float64(Packet) / float64(limit) * float64(time.Second))
		least := float64(limit)
		c.due(p, 0.5)
		c.paid(packet / 12)
		least = min(least, c.due(p, 0.5)) // nor is it at first
		for range 40 {
			c.shared(packet, 2*usual)
			least = min(least, c.due(p, 0.5))
			c.paid(packet / 12)
			least = min(least, c.due(p, 0.5))
		}
		require.GreaterOrEqual(t, least, 0.35*float64(limit), "half of %d is due, less a thirteenth", limit)
	}
}

// However many others send, no packet waits for long at a rate that may be raised meanwhile.
func TestShareOfManyIsSoonRaised(t *testing.T) {
	const limit = 10_000
	c, p := &clockOf{limit: limit}, &Progress{}
	for range 40 {
		c.shared(Look, 100*usual)
		rate := c.due(p, 0.01)
		require.GreaterOrEqual(t, rate, Packet/packetTime.Seconds())
		require.LessOrEqual(t, rate, float64(limit))
	}
	c.now += longest // and nothing was charged
	require.InDelta(t, limit, c.due(p, 1), limit/4)
}

func TestShareFollowsOthers(t *testing.T) {
	const limit = 10_000_000
	c, p := &clockOf{limit: limit}, &Progress{}
	for range 20 {
		c.shared(Look, usual)
		c.due(p, 1)
	}
	require.InDelta(t, limit, c.due(p, 1), limit/20)
	for range 3 {
		c.shared(Look, 4*usual)
		c.due(p, 0.25)
	}
	require.InDelta(t, limit/4, c.due(p, 0.25), limit/40)
}

func TestShareOfAFreshClock(t *testing.T) {
	c, p := &clockOf{limit: 1_000_000}, &Progress{}
	require.InDelta(t, 1_000_000, c.due(p, 1), 250_000)
	for range 3 {
		c.shared(Look, 4*usual)
		c.due(p, 0.25)
	}
	p.Forget()
	require.InDelta(t, 1_000_000, c.due(p, 1), 250_000)
}

// Readings from the time of another limit say nothing of this one.
func TestShareOfAChangedLimit(t *testing.T) {
	c, p := &clockOf{limit: 10_000_000}, &Progress{}
	for range 20 {
		c.shared(Look, 50*usual)
		c.due(p, 0.02)
	}
	c.limit = 10_000
	require.InDelta(t, c.limit, c.due(p, 1), 2_500)
}
