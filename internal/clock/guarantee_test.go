package clock

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
	"github.com/netnice/netnice/internal/testutil"
)

// A class with a guarantee gets at least that in every second, beside any number of sockets of other classes and with
// any weights. All classes together get the rate, and no more.
func TestGuarantee(t *testing.T) {
	r := open(t)
	const seconds = 10
	for _, rate := range testutil.Subset([]uint64{1_250_000, 12_500_000, 1_250_000_000}, 1) {
		chunk := min(max(rate/250, 3000), 65536)
		for _, guarantees := range []struct{ classes, percent, sockets int }{{1, 5, 1}, {1, 50, 4}, {1, 95, 1}, {5, 19, 2}, {50, 1, 1}} {
			for _, others := range []int{1, 8} {
				name := fmt.Sprintf("%d of %d%% with %d sockets each, %d others, %d bytes per s", guarantees.classes, guarantees.percent, guarantees.sockets, others, rate)
				t.Run(name, func(t *testing.T) {
					b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
					defer b.close()
					guarantee := rate * uint64(guarantees.percent) / 100
					var all, have []*sender
					for i := range guarantees.classes * guarantees.sockets {
						s := &sender{class: uint64(i % guarantees.classes), weight: 1, chunk: fixed(chunk / 2), next: bootNS, guarantee: guarantee}
						have, all = append(have, s), append(all, s)
					}
					for i := range others * 64 {
						all = append(all, &sender{class: uint64(1000 + i%others), weight: 10000, chunk: fixed(chunk), next: bootNS})
					}
					forget := func() {
						for _, s := range all {
							s.bytes = 0
						}
					}
					now := uint64(bootNS + 2e9)
					b.run(all, now, math.MaxInt)
					for second := range seconds {
						forget()
						now += 1e9
						b.run(all, now, math.MaxInt)
						classes := map[uint64]uint64{}
						for _, s := range have {
							classes[s.class] += s.bytes
						}
						for class, bytes := range classes {
							slack := float64(chunk) // a chunk at the edge of a second
							require.GreaterOrEqual(t, float64(bytes)+slack, 0.995*float64(guarantee), "class %d in second %d", class, second)
						}
					}
					// Each other class sends one chunk before it is paid.
					now += timeOf(2*uint64(others)*64*chunk, rate/20)
					b.run(all, now, math.MaxInt)
					forget()
					b.run(all, now+seconds*1e9, math.MaxInt)
					total := uint64(0)
					for _, s := range all {
						total += s.bytes
					}
					require.InEpsilon(t, seconds*float64(rate), total, 0.01)
				})
			}
		}
	}
}

// If the guarantees exceed the rate, the rate holds nevertheless.
func TestGuaranteesTooMany(t *testing.T) {
	r := open(t)
	const rate = 1_000_000
	b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
	defer b.close()
	var all []*sender
	for i := range uint64(5) {
		all = append(all, &sender{class: i, weight: 100, chunk: fixed(3000), next: bootNS, guarantee: rate})
	}
	b.run(all, bootNS+2e9, math.MaxInt)
	for _, s := range all {
		s.bytes = 0
	}
	b.run(all, bootNS+12e9, math.MaxInt)
	total := uint64(0)
	for _, s := range all {
		total += s.bytes
		require.Greater(t, s.bytes, uint64(10*rate/5/2), "class %d", s.class)
	}
	require.InEpsilon(t, 10*rate, total, 0.01)
}

// In addition to its guarantee a class gets its fair part of the rest, with one socket or with many.
func TestGuaranteeAndShare(t *testing.T) {
	r := open(t)
	const rate, guarantee, chunk = 10_000_000, 4_000_000, 8000
	for _, sockets := range []int{1, 8, 64} {
		b := newBench(t, r, rate, rate/100, clocktest.FirstVirtualTime)
		var all []*sender
		for range sockets {
			all = append(all, &sender{class: 1, weight: 100, chunk: fixed(chunk), next: bootNS, guarantee: guarantee})
		}
		for range 16 {
			all = append(all, &sender{class: 2, weight: 100, chunk: fixed(chunk), next: bootNS})
		}
		b.run(all, bootNS+2e9, math.MaxInt)
		for _, s := range all {
			s.bytes = 0
		}
		b.run(all, bootNS+12e9, math.MaxInt)
		var bytes [3]uint64
		for _, s := range all {
			bytes[s.class] += s.bytes
		}
		b.close()
		require.InEpsilon(t, 10*(guarantee+(rate-guarantee)/2), bytes[1], 0.02, "%d sockets", sockets)
		require.InEpsilon(t, 10*(rate-guarantee)/2, bytes[2], 0.02, "%d sockets", sockets)
	}
}

// An idle guarantee takes nothing from other classes. A guarantee that is not used up makes no class wait.
func TestGuaranteeIdle(t *testing.T) {
	r := open(t)
	const rate, chunk = 10_000_000, 8000
	b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
	defer b.close()
	b.do(clocktest.Charge, 1, 100, 100, bootNS)
	alone := &sender{class: 1, weight: 100, chunk: fixed(chunk), next: bootNS, guarantee: rate / 2}
	got := b.run([]*sender{alone}, bootNS+5e9, math.MaxInt)
	require.InEpsilon(t, rate, rateOf(got, 0), 0.01, "alone it has all, and no more")
	other := &sender{class: 2, weight: 100, chunk: fixed(chunk), next: bootNS + 6e9}
	got = b.run([]*sender{other}, bootNS+11e9, math.MaxInt)
	require.InEpsilon(t, rate, rateOf(got, 0), 0.01, "the other has all while it is idle")
}

// The kernel's guarantee is that of the model, as long as rounding does not decide which is charged: the class or the
// guarantee.
func TestKernelGuaranteeIsModel(t *testing.T) {
	steps := 0
	checkBench(t, 0, func(t *rapid.T, b *bench) {
		b.rate = max(b.rate, 1_000_000)
		rate := b.rate
		model := New(Wheel(), bootNS)
		guarantee := rapid.Uint64Range(rate/100, rate).Draw(t, "guarantee")
		now := uint64(bootNS)
		const weight, other = 100, 7
		for n := range rapid.IntRange(1, 25).Draw(t, "chunks") {
			bytes := chunkSizes().Draw(t, "bytes")
			now += timeOf(rapid.Uint64Range(0, 100_000).Draw(t, "later by bytes"), rate)
			at := ratOf(now)
			tolerance := timeFor(big.NewRat(int64(100*(n+1)), 1), rate)
			tolerance.Add(tolerance, big.NewRat(int64(1000*(n+1)), 1))
			model.SetRate(1, weight, rate)
			model.Advance(rate, 0, at)
			if rapid.Bool().Draw(t, "of another") {
				model.Left(rate, at)
				model.Charge(other, weight, bytes, rate, 0)
				b.charge(other, weight, bytes, now)
				continue
			}
			near0 := func(a, b *big.Rat) bool { return near(a, b, tolerance) }
			paid := model.Paid(1, weight, model.Left(rate, at))
			owes := model.class(1).Finish.Cmp(model.Virtual) > 0
			if owes && (near0(paid, at) || near0(paid, model.guaranteedFrom(1, at))) ||
				near0(new(big.Rat).Sub(model.Time, at), ratOf(guaranteeOwedNS)) {
				return
			}
			want := model.ChargeGuaranteed(1, weight, bytes, guarantee, rate, 0, at)
			got := b.doGuaranteed(clocktest.Charge, 1, weight, bytes, now, guarantee).PaidNs
			if !near0(ratOf(got), want) {
				t.Fatalf("chunk %d: the kernel says %d ns after now, the model %s", n, int64(got-now), new(big.Rat).Sub(want, at).FloatString(3))
			}
			steps++
		}
	})
	t.Logf("%d chunks compared", steps)
}
