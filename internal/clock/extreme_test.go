package clock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

const hourNS = 3_600_000_000_000

// mix is a run of three classes with several sockets each.
func mix(b *bench, chunks int) []sent {
	var senders []*sender
	for id := range uint64(3) {
		for range 4 {
			senders = append(senders, &sender{class: id, weight: uint32(1 + 50*id), chunk: fixed(1500 + 20_000*id), next: bootNS})
		}
	}
	return b.run(senders, math.MaxInt64, chunks)
}

// A wraparound of virtual time changes no departure.
func TestVirtualTimeWraps(t *testing.T) {
	r := open(t)
	const rate = 1_000_000
	plain := newBench(t, r, rate, 10_000, clocktest.FirstVirtualTime)
	defer plain.close()
	want := mix(plain, 3000)
	// multiples of the longest slot, so that slots end at the same virtual times
	for _, before := range []uint64{1, 2, 5} {
		b := newBench(t, r, rate, 10_000, -(before << 37))
		got := mix(b, 3000)
		require.Equal(t, want, got, "%d slots before the end", before)
		if before == 1 {
			require.Less(t, b.last.Vtime, uint64(1)<<63, "the test should wrap")
		}
		b.close()
	}
}

// A class owes nothing if virtual time went more than half around while it was away.
func TestLongAbsence(t *testing.T) {
	r := open(t)
	const rate = 1_000_000
	for _, away := range []uint64{1 << 40, 1 << 62, 1<<63 - 1, 1 << 63, 1<<63 + 1<<40, 255 << 56} {
		b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
		b.charge(1, 100, 1500, bootNS)
		now := uint64(bootNS + hourNS)
		b.do(clocktest.Ask, 2, 100, 0, now)
		s := b.state()
		require.Zero(t, s.ActiveWeight)
		s.Vtime += away
		require.NoError(t, r.SetClock(b.node, s))
		require.InDelta(t, timeOf(1500, rate), b.charge(1, 100, 1500, now)-now, 2, "away for %#x", away)
		b.close()
	}
}

// After an eviction a new class owes nothing for what the child had sent. The sum keeps to the rate nevertheless.
func TestEvictedClass(t *testing.T) {
	checkBench(t, 0, func(t *rapid.T, b *bench) {
		rate := b.rate
		chunk := chunkSizes().Draw(t, "chunk")
		weight := weights().Draw(t, "weight")
		now := uint64(bootNS)
		var bytes uint64
		for range rapid.IntRange(1, 100).Draw(t, "chunks") {
			if rapid.Bool().Draw(t, "evict") {
				b.evict(1)
			}
			now = b.charge(1, weight, chunk, now)
			bytes += chunk
			b.charge(2, weight, chunk, now)
			bytes += chunk
		}
		served := float64(rate) * float64(now-bootNS) / 1e9
		if more := float64(bytes) - served; more > float64(3*chunk)+1+served*1e-6 {
			t.Fatalf("%.0f bytes more than the rate", more)
		}
		// Once all is paid, no weight is left on the clock.
		over := now + 4*timeOf(bytes+100*clocktest.SlotBytes*uint64(weight), rate)
		for range 4 { // a call passes 64 slots
			b.do(clocktest.Ask, 1, weight, 0, over)
		}
		if b.last.ActiveWeight != 0 {
			t.Fatalf("weight %d is left", b.last.ActiveWeight)
		}
	})
}

// With weights of 1 and 10000, rates of 1 byte/s to 100 GB/s and 64 KB chunks, departures follow the shares that the
// weights give.
func TestExtremesDoNotOverflow(t *testing.T) {
	r := open(t)
	for _, rate := range []uint64{1, 1_000_000_000, 100_000_000_000} {
		for _, heavy := range []int{0, 1, 50, 400} {
			b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
			for i := range heavy {
				b.charge(uint64(100+i), 10_000, 65536, bootNS)
			}
			sum := float64(heavy*10_000 + 1)
			waits := float64(b.charge(1, 1, 65536, bootNS) - bootNS)
			want := 65536 * sum / float64(rate) * 1e9
			want = min(want, float64(uint64(1)<<34-1)/float64(rate)*1e9) // the clock looks no further ahead
			require.InEpsilon(t, want, waits, 1e-3, "rate %d, %d heavy classes", rate, heavy)
			b.close()
		}
	}
}

// 20,000 classes owe 64 KB each. The distance to the first slot in use, times their weight, exceeds 64 bits in
// bytes x ns.
func TestManyDebts(t *testing.T) {
	r := open(t)
	const rate, classes, chunk = 1_000_000_000, 20_000, 65536
	b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
	defer b.close()
	for id := range uint64(classes) {
		b.charge(id, clocktest.DefaultWeight, chunk, bootNS)
	}
	due := bootNS + timeOf(classes*chunk, rate)
	at := due - timeOf(classes*chunk/10, rate)
	got := b.do(clocktest.Ask, 1, clocktest.DefaultWeight, 0, at)
	require.InEpsilon(t, due-bootNS, got.BeforeNs-bootNS, 1e-3)
}

// After hours without traffic the unused credit is the burst, and no more.
func TestIdleForHours(t *testing.T) {
	checkBench(t, 1_000_000, func(t *rapid.T, b *bench) {
		rate, burst := b.rate, b.burst
		weight := rapid.SliceOfN(weights(), 3, 3).Draw(t, "weights")
		now := uint64(bootNS)
		for range rapid.IntRange(1, 5).Draw(t, "times") {
			id := rapid.Uint64Range(0, 2).Draw(t, "class")
			weight, chunk := weight[id], chunkSizes().Draw(t, "chunk")
			paid := b.charge(id, weight, chunk, now)
			slot := clocktest.SlotBytes*uint64(weight) + 65536/4
			least := timeOf(chunk-min(chunk, burst+min(burst, slot)), rate)
			if waits := paid - now; waits+2+timeOf(2, rate) < least || waits > timeOf(chunk, rate)*10_001+2 {
				t.Fatalf("%d bytes wait %d ns", chunk, waits)
			}
			now += hourNS*rapid.Uint64Range(1, 100).Draw(t, "hours") + timeOf(65536*11_000, rate)
		}
	})
}
