package clock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// Bytes that have been sent keep, at a lower rate, the time that the old rate promised, as many as FormerBytes; the others
// are paid at the lower rate.
func TestLoweredRateKeepsPromises(t *testing.T) {
	r := open(t)
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.Uint64Range(1000, 1e11).Draw(t, "old rate")
		b := newBench(t, r, old, 0, clocktest.FirstVirtualTime)
		defer b.close()
		weight, chunk := weights().Draw(t, "weight"), chunkSizes().Draw(t, "chunk")
		var want uint64
		chunks := rapid.IntRange(1, 20).Draw(t, "chunks")
		for range chunks {
			want = b.charge(1, weight, chunk, bootNS)
		}
		b.rate = rapid.Uint64Range(max(1, old/10_000), old).Draw(t, "new rate")
		kept := FormerBytes(b.rate)
		if owed := uint64(chunks) * chunk; owed > kept {
			want = bootNS + timeOf(kept, old) + timeOf(owed-kept, b.rate)
		}
		now := bootNS + rapid.Uint64Range(0, want-bootNS).Draw(t, "after")
		got := max(b.do(clocktest.Ask, 1, weight, 0, now).PaidNs, now)
		tolerance := float64(timeOf(1, b.rate)) + 4 + float64(weight)/(1<<clocktest.VTimeShift)/float64(b.rate)*1e9
		if math.Abs(float64(got)-float64(want)) > tolerance {
			t.Fatalf("paid at +%d ns, want +%d", got-bootNS, want-bootNS)
		}
	})
}

// A higher rate pays sooner, including the bytes that are already owed.
func TestRaisedRatePaysSooner(t *testing.T) {
	r := open(t)
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.Uint64Range(1, 1e9).Draw(t, "old rate")
		b := newBench(t, r, old, 0, clocktest.FirstVirtualTime)
		defer b.close()
		chunk := chunkSizes().Draw(t, "chunk")
		promised := b.charge(1, 100, chunk, bootNS)
		b.rate = old * rapid.Uint64Range(2, 100).Draw(t, "times")
		got := b.do(clocktest.Ask, 1, 100, 0, bootNS).PaidNs
		if got-bootNS > timeOf(chunk, b.rate)+2 || got > promised {
			t.Fatalf("paid at +%d ns, promised at +%d", got-bootNS, promised-bootNS)
		}
	})
}

// Of what the old rate promised to many, FormerBytes count at that rate, of what has been sent and of what is sent then.
// Lowered again, no more do.
func TestLoweredRatePromisesToFew(t *testing.T) {
	r := open(t)
	const chunk = 3000
	for _, rates := range [][]uint64{{3_000_000, 1_000_000}, {300_000, 100_000}, {3_000_000, 2_000_000, 1_000_000}} {
		b := newBench(t, r, rates[0], 0, clocktest.FirstVirtualTime)
		const chunks = 300
		for range chunks {
			b.charge(1, 100, chunk, bootNS)
		}
		owed := float64(chunks * chunk) // bytes, of which so many are paid faster than at the present rate
		kept := float64(FormerBytes(rates[1]))
		for i, rate := range rates[1:] {
			b.rate = rate
			for range chunks { // each sends again, as promised
				b.charge(1, 100, chunk, bootNS+1)
			}
			owed += chunks * chunk
			if i == 0 {
				owed -= 2 * kept * (1 - float64(rate)/float64(rates[0]))
			}
		}
		got := b.do(clocktest.Ask, 1, 100, 0, bootNS+1).PaidNs
		require.InEpsilon(t, owed/float64(b.rate)*1e9, got-bootNS, 0.01, "%v", rates)
		b.close()
	}
}

// After a change the sum keeps to the new rate, once the departures that were promised at the old rate are over.
func TestRateAfterChange(t *testing.T) {
	r := open(t)
	for _, c := range []struct {
		name     string
		rates    []uint64 // one after another
		each     uint64   // ns
		sockets  int
		measured uint64 // ns from the last change
	}{
		{"lowered", []uint64{1_000_000, 100_000}, 5e9, 1, 60e9},
		{"lowered twice", []uint64{10_000_000, 1_000_000, 100_000}, 5e9, 4, 60e9},
		{"raised", []uint64{100_000, 1_000_000}, 5e9, 4, 60e9},
		// The departure promised at 1000 bytes/s is 65 s away. It has nothing to do with the rates after it.
		{"raised, then lowered", []uint64{1_000, 1_000_000, 100_000}, 1e9, 1, 40e9},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, r, 0, 0, clocktest.FirstVirtualTime)
			defer b.close()
			var senders []*sender
			for range c.sockets {
				senders = append(senders, &sender{class: 1, weight: 100, chunk: fixed(65536)})
			}
			now := uint64(bootNS)
			for _, rate := range c.rates {
				b.rate = rate
				for _, s := range senders {
					// TCP's timer does not exceed this time after a change to a higher rate: the daemon shortens it.
					s.next = min(max(s.next, now), max(now, b.do(clocktest.Ask, 1, 100, 0, now).PaidNs))
				}
				now += c.each
				b.run(senders, now, math.MaxInt)
			}
			for _, s := range senders {
				s.bytes = 0
			}
			b.run(senders, now+c.measured, math.MaxInt)
			var bytes uint64
			for _, s := range senders {
				bytes += s.bytes
			}
			want := float64(b.rate) * float64(c.measured) / 1e9
			require.InDelta(t, want, bytes, float64(2*65536*c.sockets), "%d bytes/s", b.rate)
		})
	}
}
