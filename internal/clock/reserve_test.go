package clock

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// reserved_bytes counts the bytes that were reserved and not redeemed, as far as they are unpaid. What a late chunk
// redeems beyond them is charged. A class never departs later without them than with them, and not before the clock's
// own time.
func TestReservedBytes(t *testing.T) {
	checkBench(t, 100_000, func(t *rapid.T, b *bench) {
		weight := map[uint64]uint32{1: weights().Draw(t, "weight"), 2: weights().Draw(t, "other weight")}
		reserved := map[uint64]uint64{}
		now := uint64(bootNS)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.Uint64Range(1, 2).Draw(t, "class")
			bytes := rapid.Uint64Range(40, 1500).Draw(t, "bytes")
			mode := rapid.SampledFrom([]uint32{clocktest.Ask, clocktest.Charge, clocktest.Reserve, clocktest.Redeem, clocktest.RedeemLate}).Draw(t, "mode")
			now += timeOf(rapid.Uint64Range(0, 3000).Draw(t, "after bytes"), b.rate)
			before := b.do(clocktest.Ask, id, weight[id], bytes, now)
			if before.BeforeNs == before.TimeNs && before.SentNs != before.BeforeNs {
				t.Fatalf("paid at %d, but sent at %d", before.BeforeNs, before.SentNs)
			}
			if before.SentNs > before.BeforeNs {
				t.Fatalf("due at %d without what is reserved, at %d with it", before.SentNs, before.BeforeNs)
			}
			if before.LeftNs > before.SentNs {
				t.Fatalf("due at %d without all that is reserved, at %d without some", before.LeftNs, before.SentNs)
			}
			w := uint64(weight[id])
			unpaid := uint64(0)
			if ahead := int64(before.Finish - before.Vtime); ahead > 0 {
				unpaid = uint64(ahead)>>20*w + uint64(ahead)&(1<<20-1)*w>>20
			}
			if want := min(reserved[id], unpaid); before.ReservedBytes != want {
				t.Fatalf("%d bytes are reserved, want %d", before.ReservedBytes, want)
			}
			res := b.do(mode, id, weight[id], bytes, now)
			want, charged := before.ReservedBytes, uint64(0)
			switch mode {
			case clocktest.Charge:
				charged = bytes
			case clocktest.Reserve:
				want += bytes
				charged = bytes
			case clocktest.Redeem:
				want -= min(want, bytes)
			case clocktest.RedeemLate:
				charged = bytes - min(want, bytes)
				want -= min(want, bytes)
			}
			// The clock goes on by a part of a byte from one call to the next at the same time.
			if res.ReservedBytes > want || res.ReservedBytes+1 < want {
				t.Fatalf("%d bytes are reserved after mode %d, want %d", res.ReservedBytes, mode, want)
			}
			if (charged == 0) != (res.Finish == before.Finish) {
				t.Fatalf("%d bytes were to be charged, and the class's tag went from %d to %d", charged, before.Finish, res.Finish)
			}
			reserved[id] = res.ReservedBytes
		}
	})
}
