package adapt

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bottleneck simulates a bottleneck packet by packet. A competing sender sends a packet for each that came out, and one
// more for each window of them, until the queue has no room. It then makes its window smaller by a part.
type bottleneck struct {
	capacity float64 // bytes/s
	buffer   int     // bytes that may wait
	far      time.Duration
	random   *rand.Rand // delays of acknowledgements, nil = none
	early    bool       // a packet's slot is free when the packet begins to leave, not when it has left

	now    time.Duration
	todo   events
	order  int
	queue  []queuedPacket
	waits  int // bytes
	busy   bool
	stayed bool // the competing sender has not ended

	cwnd, flying float64 // the competing sender's window and packets in flight
	cutAt        time.Duration

	sent, arrived, theirs float64 // packets
}

type queuedPacket struct {
	bytes int
	out   func()
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) } //nolint:forcetypeassert // nothing else is pushed
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (b *bottleneck) after(d time.Duration, do func()) {
	b.order++
	heap.Push(&b.todo, event{b.now + d, b.order, do})
}

func (b *bottleneck) run(until time.Duration) {
	for len(b.todo) > 0 && b.todo[0].at <= until {
		e := heap.Pop(&b.todo).(event) //nolint:forcetypeassert // nothing else is pushed
		b.now = e.at
		e.do()
	}
	b.now = until
}

// put reports whether there is room for a packet. It calls out when the packet leaves.
func (b *bottleneck) put(bytes int, out func()) bool {
	if b.waits+bytes > b.buffer {
		return false
	}
	b.queue = append(b.queue, queuedPacket{bytes, out})
	b.waits += bytes
	b.serve()
	return true
}

func (b *bottleneck) serve() {
	if b.busy || len(b.queue) == 0 {
		return
	}
	p := b.queue[0]
	b.queue = b.queue[1:]
	if b.early {
		b.waits -= p.bytes
	}
	b.busy = true
	b.after(time.Duration(float64(p.bytes)/b.capacity*1e9), func() {
		b.busy = false
		if !b.early {
			b.waits -= p.bytes
		}
		b.after(b.far, p.out)
		b.serve()
	})
}

// beside makes the competing sender send the packets that its window allows.
func (b *bottleneck) beside() {
	for b.stayed && b.flying+1 <= b.cwnd {
		b.flying++
		sent := b.now
		there := b.put(1500, func() {
			b.after(b.jitter(), func() {
				b.flying--
				b.theirs++
				b.cwnd += 1 / b.cwnd
				b.beside()
			})
		})
		if there {
			continue
		}
		if sent >= b.cutAt { // once in a round trip
			b.cwnd = max(b.cwnd*0.7, 1)
			b.cutAt = sent + b.far + time.Duration(float64(b.buffer)/b.capacity*1e9)
		}
		b.after(b.far+time.Duration(float64(b.buffer)/b.capacity*1e9), func() { // when the sender learns of it
			b.flying--
			b.beside()
		})
		return
	}
}

// ours sends datagrams as a window allows, with its probes.
func (b *bottleneck) ours(w *window, bytes, lostProbe int) {
	left, probes := uint64(0), 0
	var act func()
	send := func(m *mark) {
		if probes++; lostProbe > 0 && probes%lostProbe == 0 {
			return
		}
		b.put(40, func() {
			w.answer(m, b.now)
			act()
		})
	}
	act = func() {
		for {
			if m := w.leads(b.now); m != nil {
				send(m)
			}
			if left >= w.allowed() {
				return
			}
			left += uint64(bytes)
			b.sent++
			b.put(bytes, func() { b.arrived++ })
			if m := w.follows(left, b.now); m != nil {
				send(m)
			}
		}
	}
	var tick func()
	tick = func() {
		w.expire(b.now)
		w.more(b.now)
		act()
		b.after(10*time.Millisecond, tick)
	}
	tick()
}

// jitter returns the delay of an acknowledgement.
func (b *bottleneck) jitter() time.Duration {
	if b.random == nil {
		return 0
	}
	return time.Duration(b.random.Float64() * 0.2 * packet / b.capacity * 1e9)
}

func (b *bottleneck) reset() { b.sent, b.arrived, b.theirs = 0, 0, 0 }

// parts returns the parts of the capacity that both senders used since then, the time of the last reset.
func (b *bottleneck) parts(t *testing.T, since time.Duration, w *window) (ours, theirs float64) {
	t.Helper()
	all := (b.now - since).Seconds() * b.capacity
	ours, theirs = b.arrived*1428/all, b.theirs*1500/all
	t.Logf("%.3f ours, %.3f theirs, %.3f arrived, window %d", ours, theirs, b.arrived/b.sent, w.want)
	return ours, theirs
}

// In a short queue that another sender fills, our packets arrive, and both have about their half.
func TestWindowInAShortQueue(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity float64
		buffer   int
		far      time.Duration
		lost     int // one probe in this number is lost
		early    bool
	}{
		{"28 kbit/s, three packets", 3500, 4925, 0, 0, false},
		{"28 kbit/s, ten packets", 3500, 15e3, 0, 0, false},
		{"28 kbit/s, ten packets, a line", 3500, 15e3, 0, 0, true},
		{"1 Mbit/s", 125e3, 16e3, 0, 0, false},
		{"1 Mbit/s, probes are lost", 125e3, 16e3, 0, 7, false},
		{"10 Mbit/s, five packets", 1.25e6, 8e3, 0, 0, false},
		{"10 Mbit/s, ten packets over 5 ms", 1.25e6, 15e3, 5 * time.Millisecond, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &bottleneck{
				capacity: c.capacity, buffer: c.buffer, far: c.far, early: c.early, stayed: true, cwnd: 2, random: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // the same each time
			}
			one := time.Duration(1500 / c.capacity * 1e9)
			b.beside()
			b.run(100 * one)
			rtt := c.far + time.Duration(float64(c.buffer)/c.capacity*1e9)
			w := newWindow(windowFor(0.5*c.capacity, rtt), 0.5*c.capacity, c.capacity, 0, rtt, b.now)
			b.ours(w, 1428, c.lost)
			ended := false
			for range 1000 { // as long as 3,000 packets take
				b.run(b.now + 3*one)
				ended = w.judge(b.now) || ended
				if b.now < 400*one {
					b.reset()
				}
			}
			ours, theirs := b.parts(t, 400*one, w)
			require.Greater(t, b.arrived/b.sent, 0.9)
			require.InDelta(t, 0.5, ours, 0.17)
			require.InDelta(t, 0.5, theirs, 0.17)
			require.False(t, ended)
		})
	}
}

// A window that has become smaller than its share takes the room that others leave when they lose.
func TestWindowTakesRoom(t *testing.T) {
	b := &bottleneck{
		capacity: 3500, buffer: 15e3, stayed: true, cwnd: 2, random: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // the same each time
	}
	b.beside()
	b.run(40 * time.Second)
	w := newWindow(2, 1750, b.capacity, 0, 4*time.Second, b.now)
	w.settled = 1000
	b.ours(w, 1428, 0)
	for range 400 {
		b.run(b.now + time.Second)
		w.judge(b.now)
		if b.now < 140*time.Second {
			b.reset()
		}
	}
	ours, theirs := b.parts(t, 140*time.Second, w)
	require.Greater(t, b.arrived/b.sent, 0.9)
	require.InDelta(t, 0.5, ours, 0.15)
	require.InDelta(t, 0.5, theirs, 0.15)
}

// When the competing sender has ended, the window gives all of the path, and therefore ends.
func TestWindowEndsAlone(t *testing.T) {
	b := &bottleneck{capacity: 125e3, buffer: 16e3, stayed: true, cwnd: 2}
	b.beside()
	b.run(2 * time.Second)
	w := newWindow(4, 62.5e3, 125e3, 0, 100*time.Millisecond, b.now)
	b.ours(w, 1428, 0)
	for range 20 {
		b.run(b.now + 500*time.Millisecond)
		require.False(t, w.judge(b.now))
	}
	b.stayed = false
	until, ended := b.now+4*time.Second, false
	for b.now < until && !ended {
		b.run(b.now + 100*time.Millisecond)
		ended = w.judge(b.now)
	}
	require.True(t, ended)
}

// Without answers the window gives up the packets in flight, and more are sent.
func TestWindowOutlivesSilence(t *testing.T) {
	w := newWindow(2, 62.5e3, 125e3, 1000, 100*time.Millisecond, 0)
	require.NotNil(t, w.leads(0))
	require.Nil(t, w.leads(0), "once for a packet")
	require.NotNil(t, w.follows(2428, time.Millisecond))
	require.True(t, w.isFull())
	w.expire(w.patience())
	require.True(t, w.isFull(), "it may still come")
	w.expire(w.patience() + 2*time.Millisecond)
	require.False(t, w.isFull())
}

// A probe does not follow each small packet, unless no other packet may leave before.
func TestWindowProbesFewSmallPackets(t *testing.T) {
	w := newWindow(2, 62.5e3, 125e3, 0, 100*time.Millisecond, 0)
	probes := 0
	for left := uint64(200); !w.isFull(); left += 200 {
		if w.follows(left, 0) != nil {
			probes++
		}
	}
	require.Equal(t, 1, probes)
}
