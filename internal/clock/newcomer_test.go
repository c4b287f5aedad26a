package clock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// A newcomer waits only as long as its own share of the present weight requires, however much the others owe.
func TestNewcomerWaitsForItsShareOnly(t *testing.T) {
	checkBench(t, 0, func(t *rapid.T, b *bench) {
		rate := b.rate
		sum := uint64(0)
		for id := range rapid.Uint64Range(1, 8).Draw(t, "others") {
			weight := weights().Draw(t, "weight")
			sum += uint64(weight)
			for range rapid.IntRange(1, 64).Draw(t, "chunks") {
				b.charge(id, weight, 65536, bootNS)
			}
		}
		weight, bytes := weights().Draw(t, "newcomer's weight"), chunkSizes().Draw(t, "bytes")
		waits := float64(b.charge(99, weight, bytes, bootNS) - bootNS)
		own := float64(bytes) * float64(sum+uint64(weight)) / float64(weight) / float64(rate) * 1e9
		rounding := float64(sum+uint64(weight))/(1<<clocktest.VTimeShift)/float64(rate)*1e9 + 2
		if math.Abs(waits-own) > own*1e-9+rounding {
			t.Fatalf("waits %.0f ns, its own share is %.0f", waits, own)
		}
	})
}

// The share of a class that stops goes to the others at once. First the clock serves what the class owes, and a slot of
// 32 bytes per unit of weight or a quarter of that debt.
func TestIdleShareGoesToOthers(t *testing.T) {
	checkBench(t, 0, func(t *rapid.T, b *bench) {
		rate := b.rate
		leaves, stays := rapid.Uint32Range(50, 500).Draw(t, "weight"), rapid.Uint32Range(50, 500).Draw(t, "other weight")
		chunk := rapid.Uint64Range(1000, 65536).Draw(t, "chunk")
		owed := rapid.Uint64Range(40, 65536).Draw(t, "owed")
		b.charge(1, leaves, owed, bootNS)
		s := &sender{class: 2, weight: stays, chunk: fixed(chunk), next: bootNS}
		const chunks = 100
		out := b.run([]*sender{s}, math.MaxInt64, chunks+1)
		took := float64(out[chunks].at-bootNS) * float64(rate) / 1e9
		// The last departure that is promised before the class goes still leaves it its share.
		slot := float64(owed)/4 + clocktest.SlotBytes*float64(leaves)
		last := float64(chunk) * float64(leaves) / float64(stays)
		most := float64(chunks*chunk) + float64(owed) + slot + last
		if took > most*1.0001+2 || took < float64(chunks*chunk)*0.9999-2 {
			t.Fatalf("%d chunks of %d took the time of %.0f bytes, at most %.0f", chunks, chunk, took, most)
		}
	})
}

// A class that sends now and then costs a backlogged class at most a slot each time. A departure that was promised
// while it was present is late once it has gone. The burst, 10 ms as in production, makes up for that.
func TestSparseClassCostsASlot(t *testing.T) {
	r := open(t)
	const rate, chunk, bytes = 1_000_000, 10_000, 52
	b := newBench(t, r, rate, rate/100, clocktest.FirstVirtualTime)
	defer b.close()
	const pause = 50_000_000
	end := uint64(bootNS + 10_000_000_000)
	back := &sender{class: 1, weight: 100, chunk: fixed(chunk), next: bootNS}
	sparse := &sender{class: 2, weight: 100, chunk: fixed(bytes), next: bootNS, late: func() uint64 { return pause }}
	b.run([]*sender{back, sparse}, end, math.MaxInt)
	times := float64(end-bootNS) / pause
	least := rate*10.0 - times*(bytes+clocktest.SlotBytes*100)
	require.Greater(t, float64(back.bytes), least)
}
