package clock

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// rates draws rates from 1 byte/s to 100 GB/s. All powers of ten are equally frequent.
func rates() *rapid.Generator[uint64] {
	return rapid.Custom(func(t *rapid.T) uint64 {
		top := uint64(1)
		for range rapid.IntRange(0, 11).Draw(t, "magnitude") {
			top *= 10
		}
		return rapid.Uint64Range(max(1, top/10), top).Draw(t, "bytes/s")
	})
}

// weights draws weights from 1 to 10000, most often the default.
func weights() *rapid.Generator[uint32] {
	return rapid.OneOf(rapid.Just(uint32(clocktest.DefaultWeight)), rapid.SampledFrom([]uint32{1, 10000}),
		rapid.Uint32Range(1, 10000))
}

// chunks draws the sizes of IP packets and of TCP's largest chunks, in bytes.
func chunkSizes() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64Range(40, 1500), rapid.Uint64Range(1500, 65536), rapid.Just(uint64(65536)))
}

// timeOf returns the ns in which the rate serves the given bytes, rounded down.
func timeOf(bytes, rate uint64) uint64 {
	v := new(big.Int).Mul(new(big.Int).SetUint64(bytes), big.NewInt(1_000_000_000))
	return v.Div(v, new(big.Int).SetUint64(rate)).Uint64()
}

// near reports whether the difference of a and b is at most tolerance.
func near(a, b, tolerance *big.Rat) bool {
	d := new(big.Rat).Sub(a, b)
	return d.Abs(d).Cmp(tolerance) <= 0
}

// atLeast returns the later of two times.
func atLeast(v, least *big.Rat) *big.Rat {
	if v.Cmp(least) < 0 {
		return least
	}
	return v
}

// paidAt makes a step with a copy of the model. It returns when the class is paid there, at least now, and the weight
// of the classes that are backlogged then.
func (c *Clock) paidAt(id uint64, weight uint32, bytes, rate, burst uint64, at, now *big.Rat) (*big.Rat, uint64) {
	ahead := c.Clone()
	ahead.step(id, weight, bytes, rate, burst, at)
	return atLeast(ahead.Paid(id, weight, rate), now), ahead.ActiveWeight()
}

// The kernel's departures are those of the model, to within a byte's time and a tolerance for each chunk. The tolerance
// is 2^-16 bytes per unit of weight (tags are rounded to 2^-20) and 16 ns. It is multiplied by the ratio of all weight
// to the least weight: virtual time that a light class moved alone is worth more once a heavy class has started. A run
// ends where so small a difference changes the model's answer, at the end of a slot: both answers are right there.
func TestKernelIsModel(t *testing.T) {
	steps := 0
	checkBench(t, 1_000_000, func(t *rapid.T, b *bench) {
		rate, burst := b.rate, b.burst
		model := New(Wheel(), bootNS)
		weight := rapid.SliceOfN(weights(), 1, 5).Draw(t, "weights")
		sum, least := uint64(0), uint64(10000)
		for _, w := range weight {
			sum, least = sum+uint64(w), min(least, uint64(w))
		}
		now, paid := uint64(bootNS), uint64(bootNS)
		for n := range rapid.IntRange(1, 25).Draw(t, "chunks") {
			id := rapid.Uint64Range(0, uint64(len(weight)-1)).Draw(t, "class")
			bytes := chunkSizes().Draw(t, "bytes")
			switch rapid.IntRange(0, 3).Draw(t, "when") {
			case 0:
				now = max(now, paid)
			case 1:
				now += timeOf(rapid.Uint64Range(0, 3000).Draw(t, "late by bytes"), rate)
			case 2:
				now += timeOf(rapid.Uint64Range(0, 3_000_000).Draw(t, "idle for bytes"), rate)
			}
			rounding := new(big.Rat).SetFrac64(int64(16*uint64(n+1)*sum), 1<<clocktest.VTimeShift)
			rounding.Mul(rounding, new(big.Rat).SetFrac64(int64(sum), int64(least)))
			tolerance := timeFor(new(big.Rat).Add(rounding, big.NewRat(1, 1)), rate)
			tolerance.Add(tolerance, new(big.Rat).SetFrac64(int64(16*uint64(n+1)*sum), int64(least)))

			at := ratOf(now)
			want, active := model.paidAt(id, weight[id], bytes, rate, burst, at, at)
			for _, other := range []*big.Rat{new(big.Rat).Sub(at, tolerance), new(big.Rat).Add(at, tolerance)} {
				v, w := model.paidAt(id, weight[id], bytes, rate, burst, other, at)
				if w != active || !near(v, want, new(big.Rat).Add(tolerance, tolerance)) {
					return
				}
			}
			model.step(id, weight[id], bytes, rate, burst, at)
			paid = b.charge(id, weight[id], bytes, now)
			if !near(ratOf(paid), want, tolerance) {
				t.Fatalf("chunk %d: the kernel says %d ns after now, the model %s", n, paid-now, new(big.Rat).Sub(want, at).FloatString(3))
			}
			if first := model.Departure(id, rate); ratOf(paid).Cmp(new(big.Rat).Sub(first, tolerance)) < 0 {
				t.Fatalf("chunk %d: paid at %d, in fluid fair queueing not before %s", n, paid, first.FloatString(3))
			}
			if edgeNear(model, id, rounding) {
				return
			}
			steps++
		}
	})
	t.Logf("%d chunks compared", steps)
}

// edgeNear reports whether a class's finish is very near to virtual time, or to the end of a slot. Rounding then
// decides on which side the finish lies.
func edgeNear(c *Clock, id uint64, rounding *big.Rat) bool {
	k := c.Classes[id]
	if near(k.Finish, c.Virtual, rounding) {
		return true
	}
	want, moved := c.slotEnd(k.Finish), c.Clone()
	minus := new(big.Rat).Neg(rounding)
	for _, f := range []*big.Rat{minus, rounding} {
		for _, v := range []*big.Rat{minus, rounding} {
			moved.Virtual.Add(c.Virtual, v)
			if moved.slotEnd(new(big.Rat).Add(k.Finish, f)).Cmp(want) != 0 {
				return true
			}
		}
	}
	return false
}
