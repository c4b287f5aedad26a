package clock

import (
	"container/heap"
	"testing"

	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
	"github.com/netnice/netnice/internal/testutil"
)

// bootNS is the time at which the tests' clocks begin.
const bootNS = 1_000_000_000_000

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// open loads the C code, or skips the test.
func open(t testing.TB) *clocktest.Runner {
	t.Helper()
	testutil.RequireRoot(t)
	r, err := clocktest.Open()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// bench is one clock of the kernel, with the classes that were charged there.
type bench struct {
	t       failer
	r       *clocktest.Runner
	node    uint32
	rate    uint64 // bytes/s
	burst   uint64 // bytes
	last    clocktest.Result
	classes map[uint64]bool

	reserved reserved
	each     map[uint64]uint64 // periods in ns, by class: reservations without extra
}

// newBench makes a clock whose virtual time begins at vtime.
func newBench(t failer, r *clocktest.Runner, rate, burst, vtime uint64) *bench {
	t.Helper()
	node, err := r.NewClock(clocktest.State{TimeNs: bootNS, Vtime: vtime})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &bench{t: t, r: r, node: node, rate: rate, burst: burst, classes: map[uint64]bool{}}
}

// checkBench runs a check with clocks of all rates, and with bursts of up to mostBurst bytes.
func checkBench(t *testing.T, mostBurst uint64, check func(t *rapid.T, b *bench)) {
	t.Helper()
	r := open(t)
	rapid.Check(t, func(t *rapid.T) {
		rate, burst := rates().Draw(t, "rate"), uint64(0)
		if mostBurst > 0 {
			burst = rapid.Uint64Range(0, mostBurst).Draw(t, "burst")
		}
		b := newBench(t, r, rate, burst, clocktest.FirstVirtualTime)
		defer b.close()
		check(t, b)
	})
}

// close removes the clock and its classes.
func (b *bench) close() {
	b.t.Helper()
	for id := range b.classes {
		b.evict(id)
	}
	if err := b.r.RemoveClock(b.node); err != nil {
		b.t.Fatalf("%v", err)
	}
}

func (b *bench) evict(class uint64) {
	b.t.Helper()
	if err := b.r.RemoveClass(b.node, class); err != nil {
		b.t.Fatalf("%v", err)
	}
}

func (b *bench) state() clocktest.State {
	b.t.Helper()
	s, err := b.r.Clock(b.node)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	return s
}

func (b *bench) do(mode uint32, class uint64, weight uint32, bytes, now uint64) clocktest.Result {
	b.t.Helper()
	return b.doGuaranteed(mode, class, weight, bytes, now, 0)
}

// doGuaranteed does what do does, for a class with a guarantee in bytes/s, 0 = none.
func (b *bench) doGuaranteed(mode uint32, class uint64, weight uint32, bytes, now, guarantee uint64) clocktest.Result {
	b.t.Helper()
	op := clocktest.Op{
		NowNs: now, Rate: b.rate, BurstBytes: b.burst, WireBytes: bytes,
		Child: class, Node: b.node, Weight: weight, Mode: mode, Guarantee: guarantee,
	}
	if b.reserved.class == class || b.reserved.class == 0 {
		op.PeriodNs, op.Only = b.reserved.period, b.reserved.only
	}
	if period := b.each[class]; period != 0 {
		op.PeriodNs, op.Only = period, 1
	}
	res, err := b.r.Do(op)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	b.classes[class] = true
	b.last = res
	return res
}

// charge charges bytes at now. It returns when they are paid, at least now.
func (b *bench) charge(class uint64, weight uint32, bytes, now uint64) uint64 {
	b.t.Helper()
	return max(b.do(clocktest.Charge, class, weight, bytes, now).PaidNs, now)
}

// reserved says how the guarantee of a class is given, of every class if class is 0. The period is in ns. If only is 1,
// the class gets no more than its guarantee.
type reserved struct{ period, only, class uint64 }

// sender is a socket that always has data to send. It sends again when its last chunk is paid, or later by what late
// returns.
type sender struct {
	class     uint64
	weight    uint32
	guarantee uint64        // bytes/s
	chunk     func() uint64 // bytes
	late      func() uint64 // ns, nil = never
	next      uint64        // ns
	bytes     uint64
	order     int
}

// fixed returns a source of chunks of one size.
func fixed(bytes uint64) func() uint64 { return func() uint64 { return bytes } }

type queue []*sender

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].next != q[j].next {
		return q[i].next < q[j].next
	}
	return q[i].order < q[j].order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*sender)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

// sent is one chunk.
type sent struct{ at, bytes uint64 }

// run lets the senders send until the given time, or until the given number of chunks has been sent. It returns the
// chunks in order of time.
func (b *bench) run(senders []*sender, until uint64, chunks int) []sent {
	b.t.Helper()
	q := queue{}
	for i, s := range senders {
		s.order = i
		q = append(q, s)
	}
	heap.Init(&q)
	var out []sent
	for i := len(senders); len(q) > 0 && q[0].next < until && len(out) < chunks; i++ {
		s := q[0]
		now, n := s.next, s.chunk()
		s.bytes += n
		s.order = i // after the senders that had this time before
		s.next = max(b.doGuaranteed(clocktest.Charge, s.class, s.weight, n, now, s.guarantee).PaidNs, now)
		if s.late != nil {
			s.next += s.late()
		}
		heap.Fix(&q, 0)
		out = append(out, sent{now, n})
	}
	return out
}

// rateOf returns the rate of the chunks from the given index on, in bytes/s. The last chunk ends the time and is not
// counted itself.
func rateOf(chunks []sent, from int) float64 {
	var sum uint64
	for _, c := range chunks[from : len(chunks)-1] {
		sum += c.bytes
	}
	return float64(sum) / float64(chunks[len(chunks)-1].at-chunks[from].at) * 1e9
}
