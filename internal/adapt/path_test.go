package adapt

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// link simulates a bottleneck with a queue, in steps of a millisecond, and its other users.
type link struct {
	capacity float64 // bytes/s
	buffer   float64 // bytes that the queue holds
	bucket   float64 // bytes that pass at once after a pause
	base     time.Duration
	steady   float64 // bytes/s of others that do not react
	elastic  bool    // beside a sender with a window
	between  int     // one in this number of pairs that met a queue has no other packet in between, 0 = all have none

	now     time.Duration
	pairs   int
	queue   float64
	tokens  float64
	other   windowed  // the elastic one
	history []float64 // queueing delays in each ms, for packets in flight

	// Bytes since the last reset: sent, lost and used are ours, theirs is the elastic sender's. The link could carry
	// offered, and busy came out.
	sent, lost, used, offered, theirs, busy float64
}

const tick = time.Millisecond

// windowed is a sender with a window, which it halves at a loss.
type windowed struct {
	bytes  float64 // in flight
	rested time.Duration
}

// grow lets a tick pass in which the whole window was in use.
func (w *windowed) grow(rtt float64) { w.bytes += packet * tick.Seconds() / rtt }

// halve reacts to a loss, once in a round trip.
func (w *windowed) halve(now, roundTrip time.Duration) {
	if now-w.rested > roundTrip {
		w.bytes, w.rested = max(w.bytes/2, 2*packet), now
	}
}

// roundTrip returns the present time of a packet and its answer together, in seconds.
func (l *link) roundTrip() float64 { return l.base.Seconds() + l.queue/l.capacity + 0.001 }

// step lets a millisecond pass in which we send at a rate.
func (l *link) step(rate float64) {
	dt := tick.Seconds()
	ours, steady, theirs := rate*dt, l.steady*dt, 0.0
	delay := l.queue / l.capacity
	if l.elastic {
		if l.other.bytes == 0 {
			l.other.bytes = 4 * packet
		}
		rtt := l.roundTrip()
		theirs = l.other.bytes / rtt * dt
		l.other.grow(rtt)
	}
	in := ours + steady + theirs
	l.queue += in
	l.tokens = math.Min(l.tokens, l.bucket) + l.capacity*dt
	out := math.Min(l.queue, l.tokens)
	l.queue -= out
	l.tokens -= out
	l.sent += ours
	l.busy += out
	if over := l.queue - l.buffer; over > 0 {
		l.queue = l.buffer
		l.lost += over * ours / in
		ours -= over * ours / in
		if l.elastic {
			l.other.halve(l.now, l.base+time.Duration(delay*1e9))
		}
		theirs -= over * theirs / in
	}
	l.used += ours
	l.theirs += theirs
	l.offered += l.capacity * dt
	l.history = append(l.history, l.queue/l.capacity)
	l.now += tick
}

// reset sets the counters to zero.
func (l *link) reset() { l.sent, l.lost, l.used, l.offered, l.theirs, l.busy = 0, 0, 0, 0, 0, 0 }

// probe returns the outcome that is known now, of a probe that was sent a round trip ago.
func (l *link) probe() Probe {
	back := int((l.base + time.Duration(l.queue/l.capacity*1e9)) / tick)
	delay := l.history[max(len(l.history)-1-back, 0)]
	p := Probe{At: l.now, Bytes: 300, RTT: l.base + time.Duration(delay*1e9) + time.Microsecond, Gap: 10 * time.Microsecond}
	if delay > 0 {
		p.Gap = time.Duration(300 / l.capacity * 1e9)
		if l.pairs++; l.between > 0 && l.pairs%l.between > 0 {
			p.Gap *= 2
		}
	}
	if l.queue >= l.buffer-1 {
		p.Lost = 1
	}
	return p
}

// follow runs a law over the link. The sender uses its whole rate, at most want.
func (l *link) follow(law *Law, over time.Duration, want float64) {
	every := max(50*time.Millisecond, after(168, 0.05*l.capacity))
	from := l.now
	allowed := law.State().Rate
	for l.now-from < over {
		probed := l.now
		for l.now-probed < every {
			l.step(min(allowed, want))
		}
		allowed = law.Step(l.probe(), min(allowed, want))
	}
}

// followAll runs several laws over the link, one for each host behind it. It returns the
// part of the link that each has used.
func (l *link) followAll(laws []*Law, over time.Duration) []float64 {
	const every = 50 * time.Millisecond
	allowed, used, next := make([]float64, len(laws)), make([]float64, len(laws)), make([]time.Duration, len(laws))
	for i, law := range laws {
		allowed[i], next[i] = law.State().Rate, l.now+every*time.Duration(i+1)/time.Duration(len(laws))
	}
	from, offered := l.now, 0.0
	for l.now-from < over {
		sum := 0.0
		for _, rate := range allowed {
			sum += rate
		}
		before := l.used
		l.step(sum)
		offered += l.capacity * tick.Seconds()
		for i, law := range laws {
			used[i] += (l.used - before) * allowed[i] / sum
			if l.now < next[i] {
				continue
			}
			next[i] += every
			allowed[i] = law.Step(l.probe(), allowed[i])
		}
	}
	for i := range used {
		used[i] /= offered
	}
	return used
}

// Hosts behind one bottleneck come to equal parts of it, wherever they began.
func TestSeveralShareThePath(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   time.Duration
		starts []float64 // parts of the path
	}{
		{"two", 10 * time.Millisecond, []float64{0.15, 0.8}},
		{"two at a distance", 80 * time.Millisecond, []float64{0.15, 0.8}},
		{"four", 10 * time.Millisecond, []float64{0.1, 0.1, 0.1, 0.7}},
		{"eight", 20 * time.Millisecond, []float64{0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const capacity = 1.25e6
			l := &link{capacity: capacity, buffer: 125e3, base: c.base}
			var laws []*Law
			for _, start := range c.starts {
				laws = append(laws, New(config(start*capacity)))
			}
			for range 4 {
				t.Logf("%.3f", l.followAll(laws, 10*time.Second))
			}
			l.reset()
			parts := l.followAll(laws, 30*time.Second)
			var modes []Mode
			for _, law := range laws {
				modes = append(modes, law.State().Mode)
			}
			t.Logf("%.3f of it used, %.4f lost: %.3f, %v, aim %v", l.used/l.offered, l.lost/l.sent, parts, modes, laws[0].State().Aim)
			require.Greater(t, l.used/l.offered, 0.95)
			require.Less(t, l.lost/l.sent, 0.01)
			for _, part := range parts {
				require.InEpsilon(t, 1/float64(len(parts)), part, 0.15)
			}
		})
	}
}

func config(start float64) Config { return Config{Start: start, Least: 1000, Share: 0.5} }

func TestAloneFillsThePath(t *testing.T) {
	for _, c := range []struct {
		name             string
		capacity, buffer float64
		bucket           float64
		base             time.Duration
	}{
		{"28 kbit/s", 3500, 15e3, 0, 0},
		{"28 kbit/s, a bucket", 3500, 15e3, 4750, 0},
		{"1 Mbit/s", 125e3, 16e3, 0, 0},
		{"10 Mbit/s", 1.25e6, 60e3, 0, 0},
		{"10 Mbit/s, a bucket", 1.25e6, 60e3, 64e3, 0},
		{"10 Mbit/s over 50 ms", 1.25e6, 60e3, 0, 50 * time.Millisecond},
		{"100 Mbit/s", 12.5e6, 500e3, 0, 10 * time.Millisecond},
		{"1 Gbit/s", 125e6, 5e6, 0, 0},
		{"a short buffer", 1.25e6, 4e3, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &link{capacity: c.capacity, buffer: c.buffer, bucket: c.bucket, tokens: c.bucket, base: c.base}
			law := New(config(c.capacity / 4))
			slow := max(1, time.Duration(15e3/c.capacity))
			l.follow(law, slow*15*time.Second, math.Inf(1))
			l.reset()
			l.follow(law, slow*60*time.Second, math.Inf(1))
			t.Logf("%.3f of it used, %.4f lost, %+v", l.used/l.offered, l.lost/l.sent, law.State())
			require.Greater(t, l.used/l.offered, 0.95)
			require.Less(t, l.lost/l.sent, 0.01)
			require.Equal(t, ModeDelay, law.State().Mode)
		})
	}
}

// The law begins behind a full token bucket, and knows the path's capacity. It does not use the bucket's
// tokens so fast that the queue behind the bucket overflows.
func TestBeginsBehindABucket(t *testing.T) {
	for _, capacity := range []float64{125e3, 1.25e6} {
		l := &link{capacity: capacity, buffer: 15e3, bucket: 64e3, tokens: 64e3}
		c := config(capacity)
		c.Capacity = capacity
		law := New(c)
		l.follow(law, 10*time.Second, math.Inf(1))
		t.Logf("%.0f bytes/s: %.3f used, %.4f lost", capacity, l.used/l.offered, l.lost/l.sent)
		require.Greater(t, l.used/l.offered, 0.85)
		require.Less(t, l.lost/l.sent, 0.01)
	}
}

// The capacity is at least the rate that comes through, also where other packets come between those of the pairs.
func TestPacketsBetweenPairs(t *testing.T) {
	for _, capacity := range []float64{1.25e6, 12.5e6} {
		l := &link{capacity: capacity, buffer: 0.04 * capacity, between: 3}
		law := New(config(capacity / 4))
		l.follow(law, 5*time.Second, math.Inf(1))
		l.reset()
		l.follow(law, 60*time.Second, math.Inf(1))
		t.Logf("%.0f bytes/s: %.3f used, %.4f lost, %+v", capacity, l.used/l.offered, l.lost/l.sent, law.State())
		require.Greater(t, l.used/l.offered, 0.96)
		require.Less(t, l.lost/l.sent, 0.01)
		l.capacity /= 2
		l.follow(law, 5*time.Second, math.Inf(1))
		l.reset()
		l.follow(law, 5*time.Second, math.Inf(1))
		t.Logf("halved: %.3f used, %.4f lost", l.used/l.offered, l.lost/l.sent)
		require.Greater(t, l.used/l.offered, 0.93)
		require.Less(t, l.lost/l.sent, 0.01)
	}
}

func TestLeavesOthersWhatTheySend(t *testing.T) {
	for _, part := range []float64{0.3, 0.5, 0.7} {
		l := &link{capacity: 1.25e6, buffer: 60e3, base: 5 * time.Millisecond, steady: part * 1.25e6}
		law := New(config(1e6))
		l.follow(law, 10*time.Second, math.Inf(1))
		l.reset()
		l.follow(law, 60*time.Second, math.Inf(1))
		t.Logf("beside %.1f: %.3f used, %.4f lost", part, l.used/l.offered, l.lost/l.sent)
		require.Greater(t, l.used/l.offered, (1-part)*0.93)
		require.Less(t, l.lost/l.sent, 0.01)
	}
}

func TestKeepsItsShareBesideWhoFillsThePath(t *testing.T) {
	for _, base := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		for _, share := range []float64{0.3, 0.5} {
			l := &link{capacity: 1.25e6, buffer: 125e3, base: base, elastic: true}
			for l.now < 5*time.Second { // the other traffic begins before
				l.step(0)
			}
			c := config(0.6e6)
			c.Share = share
			law := New(c)
			l.follow(law, 20*time.Second, math.Inf(1))
			l.reset()
			l.follow(law, 60*time.Second, math.Inf(1))
			t.Logf("over %v, %.0f%%: %.3f ours, %.3f theirs, %.4f lost, %+v", base, share*100, l.used/l.offered, l.theirs/l.offered, l.lost/l.sent, law.State())
			require.InDelta(t, share, l.used/l.offered, 0.15)
			require.Greater(t, l.theirs/l.offered, 0.35)
			require.Less(t, l.lost/l.sent, 0.1)
			l.elastic, l.other.bytes = false, 0
			l.follow(law, 8*time.Second, math.Inf(1))
			l.reset()
			l.follow(law, 10*time.Second, math.Inf(1))
			require.Greater(t, l.used/l.offered, 0.93, "it takes all when the other has ended")
		}
	}
}

func TestFollowsAChangedCapacity(t *testing.T) {
	for _, times := range []float64{0.5, 2} {
		l := &link{capacity: 1.25e6, buffer: 60e3, base: 10 * time.Millisecond}
		law := New(config(1e6))
		l.follow(law, 20*time.Second, math.Inf(1))
		l.capacity *= times
		l.follow(law, 5*time.Second, math.Inf(1))
		l.reset()
		l.follow(law, 5*time.Second, math.Inf(1))
		t.Logf("times %.1f: %.3f used, %.4f lost", times, l.used/l.offered, l.lost/l.sent)
		require.Greater(t, l.used/l.offered, 0.93)
		require.Less(t, l.lost/l.sent, 0.01)
	}
}

func TestWhoSendsLittleRaisesNothing(t *testing.T) {
	l := &link{capacity: 1.25e6, buffer: 60e3, base: 5 * time.Millisecond}
	law := New(config(0.5e6))
	l.follow(law, 30*time.Second, 20e3)
	require.InDelta(t, 0.5e6, law.State().Rate, 1, "nothing was learned")
}

// While nothing is sent the path is probed once a second. If traffic then begins at the path's capacity, the first
// step does not raise the rate far beyond it.
func TestBeginsAfterAPause(t *testing.T) {
	law := New(config(1.25e6))
	at := time.Duration(0)
	for range 5 {
		at += time.Second
		law.Step(Probe{At: at, Bytes: 300, RTT: time.Millisecond, Gap: 10 * time.Microsecond}, 0)
	}
	at += time.Second
	require.LessOrEqual(t, law.Step(Probe{At: at, Bytes: 300, RTT: time.Millisecond, Gap: 10 * time.Microsecond}, 1.25e6), faster*1.25e6)
}

func TestBounds(t *testing.T) {
	l := &link{capacity: 1.25e6, buffer: 60e3}
	c := config(0.1e6)
	c.Most = 0.4e6
	law := New(c)
	l.follow(law, 20*time.Second, math.Inf(1))
	require.InDelta(t, 0.4e6, law.State().Rate, 1)
	l.steady = 2.5e6
	c.Most, c.Least = 0, 0.2e6
	law = New(c)
	l.follow(law, 20*time.Second, math.Inf(1))
	require.GreaterOrEqual(t, law.State().Rate, 0.2e6)
}

// The law lowers a first rate that leaves no room for probes.
func TestTooFastFromTheStart(t *testing.T) {
	l := &link{capacity: 3500, buffer: 5e3}
	law := New(config(1.25e6))
	at := time.Duration(0)
	for range 40 {
		at += 50 * time.Millisecond
		law.Step(Probe{At: at, Lost: 2}, 1.25e6)
	}
	require.Less(t, law.State().Rate, 10e3)
	l.now = at
	l.follow(law, 20*time.Second, math.Inf(1))
	l.reset()
	l.follow(law, 60*time.Second, math.Inf(1))
	t.Logf("%.3f used, %.4f lost", l.used/l.offered, l.lost/l.sent)
	require.Greater(t, l.used/l.offered, 0.85)
}

// A full queue does not grow. The losses show that more is sent than comes through.
func TestTooFastIntoAShortBuffer(t *testing.T) {
	l := &link{capacity: 1.25e6, buffer: 8e3}
	law := New(config(2 * 1.25e6))
	l.follow(law, 4*time.Second, math.Inf(1))
	l.reset()
	l.follow(law, 10*time.Second, math.Inf(1))
	t.Logf("%.3f used, %.4f lost, %+v", l.used/l.offered, l.lost/l.sent, law.State())
	require.Greater(t, l.used/l.offered, 0.9)
	require.Less(t, l.lost/l.sent, 0.01)
}

func TestSilenceHalves(t *testing.T) {
	l := &link{capacity: 1.25e6, buffer: 60e3, base: 5 * time.Millisecond}
	law := New(config(1e6))
	l.follow(law, 10*time.Second, math.Inf(1))
	at := l.now
	for range 12 {
		at += 50 * time.Millisecond
		law.Step(Probe{At: at, Lost: 2}, 1e6)
	}
	require.True(t, law.State().Dark)
	before := law.State().Rate
	require.InDelta(t, 0.6e6, before, 0.15e6, "half of what was sent when answers came")
	for range 100 {
		at += 50 * time.Millisecond
		require.InDelta(t, before, law.Step(Probe{At: at, Lost: 2}, 1e6), 0)
	}
	law.Step(Probe{At: at + time.Millisecond, Bytes: 300, RTT: 5 * time.Millisecond, Gap: time.Millisecond}, 1e6)
	require.False(t, law.State().Dark)
}
