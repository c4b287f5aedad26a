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
		reserved, finish := map[uint64]uint64{}, map[uint64]uint64{}
		now := uint64(bootNS)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.Uint64Range(1, 2).Draw(t, "class")
			bytes := rapid.Uint64Range(40, 1500).Draw(t, "bytes")
			mode := rapid.SampledFrom([]uint32{clocktest.Ask, clocktest.Charge, clocktest.Reserve, clocktest.Redeem, clocktest.RedeemLate}).Draw(t, "mode")
			now += timeOf(rapid.Uint64Range(0, 3000).Draw(t, "after bytes"), b.rate)
			if _, known := finish[id]; !known {
				finish[id] = b.do(clocktest.Ask, id, weight[id], bytes, now).Finish
			}
			res := b.do(mode, id, weight[id], bytes, now)
			if res.BeforeNs == res.TimeNs && res.SentNs != res.BeforeNs && mode != clocktest.RedeemLate {
				t.Fatalf("paid at %d, but sent at %d", res.BeforeNs, res.SentNs)
			}
			if res.SentNs > res.BeforeNs {
				t.Fatalf("due at %d without what is reserved, at %d with it", res.SentNs, res.BeforeNs)
			}
			if res.LeftNs > res.SentNs {
				t.Fatalf("due at %d without all that is reserved, at %d without some", res.LeftNs, res.SentNs)
			}
			// The reserved bytes do not exceed the unpaid bytes.
			unpaid := uint64(0)
			if ahead := int64(finish[id] - res.Vtime); ahead > 0 {
				w := uint64(weight[id])
				unpaid = uint64(ahead)>>20*w + uint64(ahead)&(1<<20-1)*w>>20
			}
			want, charged := min(reserved[id], unpaid), uint64(0)
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
			if res.ReservedBytes != want {
				t.Fatalf("%d bytes are reserved after mode %d, want %d", res.ReservedBytes, mode, want)
			}
			if (charged == 0) != (res.Finish == finish[id]) {
				t.Fatalf("%d bytes were to be charged in mode %d, and the class's tag went from %d to %d", charged, mode, finish[id], res.Finish)
			}
			reserved[id], finish[id] = res.ReservedBytes, res.Finish
		}
	})
}
