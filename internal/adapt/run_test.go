package adapt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tokens simulates a path with a queue that the traffic fills and that delays answers, by the clock of synctest.
type tokens struct {
	mu       sync.Mutex
	capacity float64
	rate     float64
	queue    float64 // bytes
	at       time.Time
	bytes    float64
	wanted   float64 // the traffic's own rate, bytes/s; 0 = as fast as allowed
	sentAt   []time.Time
	far      time.Duration // round trip without our queue
	silent   bool
	every    int // one packet in this number is lost, 0 = none
	sends    int
	probed   int
	gone     bool
}

func (p *tokens) advance() {
	now := time.Now()
	over := now.Sub(p.at).Seconds()
	p.at = now
	rate := p.rate
	if p.wanted > 0 {
		rate = min(rate, p.wanted)
	}
	p.bytes += rate * over
	p.queue = min(max(p.queue+(rate-p.capacity)*over, 0), 100e3)
}

func (p *tokens) MinSize() int             { return 40 }
func (p *tokens) MaxSize() int             { return 1500 }
func (p *tokens) RoundTrip() time.Duration { return p.far }

func (p *tokens) Send(size int, tell func(Answer)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance()
	p.queue += float64(size)
	p.probed += size
	p.sends++
	p.sentAt = append(p.sentAt, time.Now())
	if p.silent || p.every > 0 && p.sends%p.every == 0 {
		return nil
	}
	begun, wait := time.Now(), p.far+time.Duration(p.queue/p.capacity*1e9)
	time.AfterFunc(wait, func() { tell(Answer{RoundTrip: wait, Received: begun.Add(wait)}) })
	return nil
}

func (p *tokens) SentBytes() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance()
	if p.gone {
		return 0, errGone
	}
	return uint64(p.bytes), nil
}

func (p *tokens) SetRate(bytesPerSec uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance()
	p.rate = float64(bytesPerSec)
	return nil
}

func (p *tokens) Gate(time.Duration) (Gate, error) { return nil, ErrNoGate }

var errGone = errors.New("gone")

func TestRunFindsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tokens{capacity: 500e3, rate: 100e3, at: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		var last State
		steps := 0
		require.NoError(t, Run(ctx, config(100e3), p, p, func(s State) { last, steps = s, steps+1 }))
		t.Logf("%d steps, %+v, %d bytes of probes", steps, last, p.probed)
		require.InDelta(t, 500e3, p.rate, 50e3)
		require.Less(t, float64(p.probed), 0.03*p.bytes+5e3)
	})
}

func TestRunEndsWithTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tokens{capacity: 500e3, rate: 100e3, at: time.Now()}
		time.AfterFunc(300*time.Millisecond, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.gone = true
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, Run(ctx, config(100e3), p, p, func(State) {}), errGone)
	})
}

// Lost probes do not delay the evaluation of answered ones.
func TestRunSeesLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tokens{capacity: 500e3, rate: 100e3, at: time.Now(), every: 3}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var last State
		steps := 0
		require.NoError(t, Run(ctx, config(100e3), p, p, func(s State) { last, steps = s, steps+1 }))
		require.Greater(t, steps, 15)
		require.InDelta(t, 0.33, last.Lost, 0.2)
	})
}

// While nothing is sent the path is probed once a second, and at once when traffic begins.
func TestRunWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tokens{capacity: 500e3, rate: 400e3, wanted: 1, at: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 3600*time.Millisecond)
		defer cancel()
		var began time.Time
		time.AfterFunc(2300*time.Millisecond, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.advance()
			p.wanted, began = 0, time.Now()
		})
		require.NoError(t, Run(ctx, config(400e3), p, p, func(State) {}))
		p.mu.Lock()
		defer p.mu.Unlock()
		before, soon := 0, 0
		for _, at := range p.sentAt {
			switch since := at.Sub(began); {
			case since < 0:
				before++
			case since < 500*time.Millisecond:
				soon++
			}
		}
		require.LessOrEqual(t, before, 2*3, "a pair a second")
		require.GreaterOrEqual(t, soon, 2, "a pair soon after somebody has begun")
	})
}

// While nothing changes on a slow path, probes cost two per cent of it, not five; a path that becomes slower is probed more
// often at once.
func TestRunProbesACalmPathLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity = 7000.0 // bytes/s
		p := &tokens{capacity: capacity, rate: capacity, at: time.Now()}
		type reading struct {
			probed int
			bytes  float64
		}
		readings := map[time.Duration]reading{}
		read := func(at time.Duration, then func()) {
			time.AfterFunc(at, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.advance()
				readings[at] = reading{p.probed, p.bytes}
				then()
			})
		}
		var halved time.Time
		read(100*time.Second, func() {})
		read(300*time.Second, func() { p.capacity, halved = capacity/2, time.Now() })
		ctx, cancel := context.WithTimeout(t.Context(), 360*time.Second)
		defer cancel()
		var last State
		longest := time.Duration(0) // queue since
		require.NoError(t, Run(ctx, config(capacity), p, p, func(s State) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if last = s; !halved.IsZero() {
				longest = max(longest, s.Queue)
			}
		}))
		p.mu.Lock()
		defer p.mu.Unlock()
		from, to := readings[100*time.Second], readings[300*time.Second]
		cost, used := float64(to.probed-from.probed)/(200*capacity), (to.bytes-from.bytes)/(200*capacity)
		t.Logf("probes cost %.4f, %.3f used; then %+v, queue %.0f", cost, used, last, p.queue)
		require.Less(t, cost, 0.03)
		require.Greater(t, used, 0.9)

		shortest := time.Hour
		for i := 2; i < len(p.sentAt); i += 2 { // pairs
			if since := p.sentAt[i].Sub(halved); since > 0 && since < 30*time.Second {
				shortest = min(shortest, p.sentAt[i].Sub(p.sentAt[i-2]))
			}
		}
		require.Less(t, shortest, time.Second, "at five per cent again")
		require.Less(t, longest, 1500*time.Millisecond, "it is seen in time")
		require.InDelta(t, capacity/2, last.Rate, 0.2*capacity/2)
		require.Equal(t, ModeDelay, last.Mode)
	})
}

func TestRunBearsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tokens{capacity: 500e3, rate: 400e3, at: time.Now(), silent: true}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var last State
		require.NoError(t, Run(ctx, config(400e3), p, p, func(s State) { last = s }))
		require.Less(t, last.Rate, 100e3, "as it was never answered")
	})
}

// If other senders have filled the path's queue for seconds, the runner knows at first only the round trip of one
// answer.
func TestRunWaitsForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const far = 3 * time.Second
		p := &tokens{capacity: 500e3, rate: 100e3, at: time.Now(), far: far}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var last State
		require.NoError(t, Run(ctx, config(100e3), p, p, func(s State) { last = s }))
		require.Equal(t, longest, last.Base, "no path is as long")
		require.Equal(t, ModeShare, last.Mode, "so others have filled it")
		require.InDelta(t, (far - longest).Seconds(), last.Queue.Seconds(), 0.3)
		require.Less(t, last.Lost, 0.5)
		require.False(t, last.Dark)
	})
}

// The ceiling with a window is above the share, and never above the requested limit.
func TestCeiling(t *testing.T) {
	c := config(100e3)
	c.Most = 60e3
	r := runner{law: New(c)}
	r.law.capacity = 100e3
	require.Equal(t, uint64(40e3), r.ceiling(40e3))
	require.InDelta(t, 50e3, r.share(), 0)
	r.held = &held{}
	require.Equal(t, uint64(54e3), r.ceiling(40e3))
	require.Equal(t, uint64(60e3), r.ceiling(50e3))
	r.law.cfg.Share = 0.9
	require.InDelta(t, 60e3, r.share(), 0)
}
