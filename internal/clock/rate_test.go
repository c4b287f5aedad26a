package clock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// Bytes that have been sent keep, at a lower rate, the time that the old rate promised.
func TestLoweredRateKeepsPromises(t *testing.T) {
	r := open(t)
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.Uint64Range(1000, 1e11).Draw(t, "old rate")
		b := newBench(t, r, old, 0, clocktest.FirstVirtualTime)
		defer b.close()
		weight, chunk := weights().Draw(t, "weight"), chunkSizes().Draw(t, "chunk")
		var promised uint64
		for range rapid.IntRange(1, 20).Draw(t, "chunks") {
			promised = b.charge(1, weight, chunk, bootNS)
		}
		b.rate = rapid.Uint64Range(max(1, old/10_000), old).Draw(t, "new rate")
		now := bootNS + rapid.Uint64Range(0, promised-bootNS).Draw(t, "after")
		got := max(b.do(clocktest.Ask, 1, weight, 0, now).PaidNs, now)
		tolerance := float64(timeOf(1, b.rate)) + 4 + float64(weight)/(1<<clocktest.VTimeShift)/float64(b.rate)*1e9
		if math.Abs(float64(got)-float64(promised)) > tolerance {
			t.Fatalf("paid at +%d ns, promised at +%d", got-bootNS, promised-bootNS)
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

// Of what the old rate promised to many, as much counts at that rate as leaves in 0.1 s, or 64 KB. Lowered again, no
// more does.
func TestLoweredRatePromisesToFew(t *testing.T) {
	r := open(t)
	const chunk = 3000
	for _, c := range []struct {
		rates  []uint64
		chunks int
		atMost uint64 // bytes that count at an old rate
	}{
		{[]uint64{3_000_000, 1_000_000}, 1000, 300_000},
		{[]uint64{300_000, 100_000}, 300, 65536},
		{[]uint64{3_000_000, 2_000_000, 1_000_000}, 1000, 300_000},
	} {
		b := newBench(t, r, c.rates[0], 0, clocktest.FirstVirtualTime)
		var promised uint64
		for range c.chunks {
			promised = b.charge(1, 100, chunk, bootNS)
		}
		for _, b.rate = range c.rates[1:] {
			for range c.chunks / 2 { // each of the first half sends again, as promised
				b.charge(1, 100, chunk, bootNS+1)
			}
		}
		got := b.do(clocktest.Ask, 1, 100, 0, bootNS+1).PaidNs
		want := promised + timeOf(c.atMost, c.rates[0])
		for _, rate := range c.rates[1:] {
			want += timeOf(uint64(c.chunks/2)*chunk-c.atMost, rate)
			c.atMost = 0
		}
		require.InEpsilon(t, want-bootNS, got-bootNS, 0.01, "%v", c.rates)
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
