package clock

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// A class that is alone departs as the virtual clock (GCRA) says: at the later of its last departure and now less the
// burst, plus the chunk's time. After a pause it may depart up to a slot earlier: 32 bytes per unit of weight, or a
// quarter of what it owed. The clock has served these bytes while the class still counted as backlogged. The class
// never departs earlier by more than the burst. There is no drift over any number of chunks beyond a byte's time, 2
// ns, and 2^-20 bytes per unit of weight and chunk.
func TestAloneIsVirtualClock(t *testing.T) {
	checkBench(t, 1_000_000, func(t *rapid.T, b *bench) {
		rate, burst := b.rate, b.burst
		weight := weights().Draw(t, "weight")
		slot := timeFor(ratOf(min(burst, clocktest.SlotBytes*uint64(weight)+65536/4)), rate)
		credit := timeFor(ratOf(burst), rate)
		late, early := ratOf(bootNS), ratOf(bootNS)
		now := uint64(bootNS)
		for n := range rapid.IntRange(1, 60).Draw(t, "chunks") {
			bytes := chunkSizes().Draw(t, "bytes")
			if rapid.IntRange(0, 4).Draw(t, "pause") == 0 {
				now += timeOf(rapid.Uint64Range(0, 3_000_000).Draw(t, "for bytes"), rate)
			}
			paid := b.charge(1, weight, bytes, now)
			late = virtualClock(late, now, credit, bytes, rate)
			early = virtualClock(early, now, new(big.Rat).Add(credit, slot), bytes, rate)
			rounding := new(big.Rat).SetFrac64(int64(uint64(n+1)*uint64(weight)), 1<<clocktest.VTimeShift)
			tolerance := timeFor(rounding.Add(rounding, big.NewRat(1, 1)), rate)
			tolerance.Add(tolerance, big.NewRat(2, 1))
			got := ratOf(paid)
			if got.Cmp(new(big.Rat).Add(atLeast(late, ratOf(now)), tolerance)) > 0 {
				t.Fatalf("chunk %d: paid at %d, virtual clock %s", n, paid, late.FloatString(3))
			}
			if got.Cmp(new(big.Rat).Sub(early, tolerance)) < 0 {
				t.Fatalf("chunk %d: paid at %d, virtual clock with a slot more %s", n, paid, early.FloatString(3))
			}
			now = paid
		}
	})
}

// virtualClock returns the departure after last, in ns.
func virtualClock(last *big.Rat, now uint64, credit *big.Rat, bytes, rate uint64) *big.Rat {
	least := new(big.Rat).Sub(ratOf(now), credit)
	return new(big.Rat).Add(atLeast(last, least), timeFor(ratOf(bytes), rate))
}
