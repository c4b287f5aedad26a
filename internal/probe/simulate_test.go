package probe

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// simulated is a path with a token bucket and others' traffic, in its own time.
type simulated struct {
	rate     float64 // the bottleneck's rate, bytes/s
	burst    float64 // the bucket's depth, bytes
	buffer   float64 // the queue's size, bytes
	line     float64 // our highest sending rate, bytes/s
	divided  float64 // the same in fragments, 0 = fragments do not pass
	others   float64 // rate of other traffic, bytes/s
	poisson  bool
	random   *rand.Rand
	clock    float64 // seconds
	tokens   float64
	filled   float64 // time of the last count of tokens
	free     float64 // time at which the queue is empty
	upcoming float64 // time of the others' next packet
	dropped  int
	sent     float64 // our bytes
}

const simulatedDelay = 0.005

// arrive puts a packet into the queue at a time and returns when it has left, NaN if dropped.
func (s *simulated) arrive(at, size float64) float64 {
	start := max(at, s.free)
	if (start-at)*s.rate > s.buffer {
		s.dropped++
		return math.NaN()
	}
	s.tokens = min(s.burst, s.tokens+(start-s.filled)*s.rate)
	s.filled = start
	leave := start
	if s.tokens < size {
		leave = start + (size-s.tokens)/s.rate
		s.tokens, s.filled = size, leave
	}
	s.tokens -= size
	s.free = leave
	return leave
}

// until makes the others' packets arrive up to a time.
func (s *simulated) until(at float64) {
	const size = 1500
	for s.others > 0 && s.upcoming <= at {
		s.arrive(s.upcoming, size)
		gap := size / s.others
		if s.poisson {
			gap *= s.random.ExpFloat64()
		}
		s.upcoming += gap
	}
}

type arrivals []float64

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i] < a[j] }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(float64)) }
func (a *arrivals) Pop() any          { x := (*a)[len(*a)-1]; *a = (*a)[:len(*a)-1]; return x }

func (s *simulated) train(_ context.Context, p plan) (Train, error) {
	var times arrivals
	gap := float64(p.size) / s.line
	if p.fragments > 0 {
		gap = float64(p.size) / max(s.divided, s.line)
	}
	at := s.clock
	for i := range p.first + p.packets {
		heap.Push(&times, at)
		if i >= p.first && p.bytesPerSec > 0 {
			at += max(gap, float64(p.size)/p.bytesPerSec)
		} else {
			at += gap
		}
	}
	t := Train{Size: p.size}
	for i := 0; times.Len() > 0; i++ {
		at := heap.Pop(&times).(float64)
		s.until(at)
		s.sent += float64(p.size)
		r := Reply{Seq: uint64(i), Size: p.size, SentNS: int64(at * 1e9)}
		if leave := s.arrive(at, float64(p.size)); math.IsNaN(leave) || p.fragments > 0 && s.divided == 0 {
			r.Lost = true
		} else {
			r.ReceivedNS = int64((leave + simulatedDelay) * 1e9)
			s.clock = max(s.clock, leave+simulatedDelay)
		}
		t.Replies = append(t.Replies, r)
	}
	s.until(s.clock)
	return t, nil
}

func (s *simulated) sleep(_ context.Context, d time.Duration) error {
	s.clock += d.Seconds()
	s.until(s.clock)
	return nil
}

func (s *simulated) now() time.Time { return time.Unix(0, int64(s.clock*1e9)) }

func measured(t *testing.T, s *simulated) Result {
	t.Helper()
	s.random, s.tokens = rand.New(rand.NewPCG(3, 4)), s.burst
	m := &measurement{path: s, o: Options{Share: 0.5, Duration: 2 * time.Minute, Bytes: 32 << 20, Size: 1500}, divided: fragments * 1500}
	if err := m.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.result
}

// The cases are every rate and bucket of bench-probe, without the noise of a machine.
func TestCapacity(t *testing.T) {
	for _, rate := range []float64{3500, 125_000, 1_250_000, 12_500_000, 125_000_000} {
		for _, burst := range []float64{1600, 4750, 16 << 10, 64 << 10} {
			t.Run(fmt.Sprint(rate, burst), func(t *testing.T) {
				s := &simulated{rate: rate, burst: burst, buffer: 1e9, line: 10 * 125e6}
				r := measured(t, s)
				if e := r.Capacity.BytesPerSec/rate - 1; math.Abs(e) > 0.02 || r.Capacity.AtLeast {
					t.Errorf("capacity %+v is off by %.3f", r.Capacity, e)
				}
				if e := r.Available.BytesPerSec/rate - 1; math.Abs(e) > 0.05 {
					t.Errorf("available %+v is off by %.3f, without others", r.Available, e)
				}
				if burst > 15000 && rate > 1e6 && (float64(r.BurstBytes) < 0.7*burst || float64(r.BurstBytes) > 1.5*burst) {
					t.Errorf("the bucket of %g bytes was taken for %d", burst, r.BurstBytes)
				}
				if r.SentBytes != uint64(s.sent) || r.SentBytes > 32<<20 {
					t.Errorf("%d bytes were sent, and %g came", r.SentBytes, s.sent)
				}
			})
		}
	}
}

func TestAvailable(t *testing.T) {
	var errors []float64
	for _, rate := range []float64{1_250_000, 12_500_000, 125_000_000} {
		for _, burst := range []float64{1600, 64 << 10} {
			for _, part := range []float64{0.3, 0.5, 0.7} {
				for _, poisson := range []bool{false, true} {
					s := &simulated{rate: rate, burst: burst, buffer: rate / 5, line: 10 * 125e6, others: part * rate, poisson: poisson}
					r := measured(t, s)
					e := math.Abs(r.Available.BytesPerSec/(rate*(1-part)) - 1)
					errors = append(errors, e)
					if e > 0.4 {
						t.Errorf("rate %g, bucket %g, others %g (Poisson %v): %+v is off by %.2f", rate, burst, part, poisson, r.Available, e)
					}
				}
			}
		}
	}
	if m := median(errors); m > 0.08 {
		t.Errorf("the median error is %.3f", m)
	}
}

// The capacity of a path that is faster than we send cannot be measured.
func TestNoBottleneck(t *testing.T) {
	r := measured(t, &simulated{rate: 1e10, burst: 1 << 20, buffer: 1e9, line: 1e8})
	if !r.Capacity.AtLeast || r.Capacity.BytesPerSec > 1.01e8 || r.Capacity.BytesPerSec < 0.5e8 {
		t.Errorf("%+v", r.Capacity)
	}
	if !r.Available.AtLeast {
		t.Errorf("%+v", r.Available)
	}
}

// Where single packets are sent too slowly, packets in fragments show the capacity.
func TestInFragments(t *testing.T) {
	for _, others := range []float64{0, 0.5} {
		s := &simulated{rate: 125e6, burst: 64 << 10, buffer: 125e5, line: 0.9 * 125e6, divided: 3 * 125e6, others: others * 125e6, poisson: true}
		r := measured(t, s)
		if e := r.Capacity.BytesPerSec/125e6 - 1; math.Abs(e) > 0.02 || r.Capacity.AtLeast || r.Fragments != fragments {
			t.Errorf("capacity %+v is off by %.3f", r.Capacity, e)
		}
		if e := r.Available.BytesPerSec/(125e6*(1-others)) - 1; math.Abs(e) > 0.15 {
			t.Errorf("available %+v is off by %.3f", r.Available, e)
		}
		if r.SentBytes > 32<<20 {
			t.Errorf("%d bytes were sent", r.SentBytes)
		}
	}
}

// Probing uses no more than the share, over trains and pauses together.
func TestShareIsKept(t *testing.T) {
	for _, share := range []float64{0.1, 0.5} {
		s := &simulated{rate: 1_250_000, burst: 3000, buffer: 1e9, line: 1e9}
		s.random, s.tokens = rand.New(rand.NewPCG(3, 4)), s.burst
		m := &measurement{path: s, o: Options{Share: share, Duration: time.Hour, Bytes: 32 << 20, Size: 1500}}
		if err := m.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		last := float64(64 * 1500) // the measurement ends without the pause after this train
		if used := (s.sent - last) / s.clock / s.rate; used > 1.2*share {
			t.Errorf("%.3f of the path was used, %g was allowed", used, share)
		}
	}
}

// Short buffers lose packets of trains, and the measurement still finds the rate.
func TestShortQueue(t *testing.T) {
	r := measured(t, &simulated{rate: 1_250_000, burst: 1600, buffer: 12_000, line: 1e9})
	if e := r.Capacity.BytesPerSec/1_250_000 - 1; math.Abs(e) > 0.02 || r.Lost == 0 {
		t.Errorf("%+v, %d lost", r.Capacity, r.Lost)
	}
}

// The queue has room for a few packets, behind a bucket of three packets or of one. The measurement reports the rate, or
// that the rate is not known, and never a wrong bound.
func TestShallowQueue(t *testing.T) {
	for _, rate := range []float64{3500, 25_000, 125_000, 1_250_000, 12_500_000} {
		for _, burst := range []float64{1600, 4750, 10 * 1514} {
			for _, buffer := range []float64{0, 0.005 * rate, 4750, 10 * 1514, 0.05 * rate} {
				for _, others := range []float64{0, 0.2} {
					s := &simulated{rate: rate, burst: burst, buffer: buffer, line: 10 * 125e6, others: others * rate, poisson: true, divided: 10 * 125e6}
					s.random, s.tokens = rand.New(rand.NewPCG(3, 4)), s.burst
					m := &measurement{path: s, o: Options{Share: 0.5, Duration: 30 * time.Second, Bytes: 32 << 20, Size: 1500}, divided: fragments * 1500}
					err := m.run(t.Context())
					c := m.result.Capacity
					what := fmt.Sprintf("%.0f bytes/s, bucket %.0f, queue %.0f, others %.1f: %+v, %v", rate, burst, buffer, others, c, err)
					switch {
					case err != nil || c.BytesPerSec == 0:
						if !errors.Is(err, ErrDropped) || buffer >= 4750 {
							t.Error(what)
						}
					case c.AtLeast:
						if c.BytesPerSec > 1.05*rate {
							t.Error(what)
						}
					case others == 0 && math.Abs(c.BytesPerSec/rate-1) > 0.05, c.BytesPerSec > 1.1*rate:
						t.Error(what)
					}
				}
			}
		}
	}
}
