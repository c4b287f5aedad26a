package clock

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// crowd draws classes with sockets that start at different times. It returns the bytes by which they may exceed the
// rate in a window: two chunks for each socket, and a slot for each class (4 bytes per unit of weight, or a quarter of
// its debt).
//
// The first chunk of a socket leaves before it is paid. The second chunk may leave early, because a departure is
// promised for the classes that are present: newcomers slow the class down after that. A newcomer that is a hundred
// times as heavy adds up to half a chunk. The clock serves a slot while a class that went idle still counts as
// backlogged, and the class makes up for it when it returns.
func crowd(t *rapid.T, rate uint64, lateness []uint64) (senders []*sender, room, weightSum uint64) {
	for id := range rapid.Uint64Range(1, 8).Draw(t, "classes") {
		weight := weights().Draw(t, "weight")
		start := bootNS + timeOf(rapid.Uint64Range(0, 500_000).Draw(t, "comes after bytes"), rate)
		late := rapid.SampledFrom(lateness).Draw(t, "late by up to bytes")
		size := chunkSizes().Draw(t, "chunk")
		sockets := rapid.SampledFrom([]uint64{1, 1, 8}).Draw(t, "sockets")
		seed := rapid.Uint64().Draw(t, "seed")
		for range sockets {
			s := &sender{class: id, weight: weight, chunk: fixed(size), next: start}
			if late > 0 {
				s.late = func() uint64 {
					seed = seed*6364136223846793005 + 1442695040888963407
					return timeOf((seed>>33)%late, rate)
				}
			}
			senders = append(senders, s)
		}
		room += 2*size*sockets + clocktest.SlotBytes*uint64(weight) + size*sockets/2
		weightSum += uint64(weight)
	}
	return senders, room, weightSum
}

// excess returns by how many bytes the chunks exceed the rate, in the window in which they exceed it most.
func excess(chunks []sent, rate uint64) float64 {
	bytes, lowest, most := uint64(0), 0.0, 0.0
	for _, c := range chunks {
		served := float64(rate) * float64(c.at-bootNS) / 1e9
		lowest = min(lowest, float64(bytes)-served)
		bytes += c.bytes
		most = max(most, float64(bytes)-served-lowest)
	}
	return most
}

// The bytes that leave in any window are at most
//
//	rate x window + burst + for each socket 2.5 chunks + for each class a slot
//
// and 2^-20 bytes per unit of weight and 1 ns per chunk for rounding. The classes start at any time and are backlogged
// from then on.
func TestSumNeverExceedsRate(t *testing.T) {
	checkBench(t, 1_000_000, func(t *rapid.T, b *bench) {
		rate, burst := b.rate, b.burst
		senders, room, sum := crowd(t, rate, []uint64{0})
		out := b.run(senders, 1<<63, 1500)
		rounding := (float64(sum)/(1<<clocktest.VTimeShift)+float64(rate)/1e9)*float64(len(out)) + 1
		if over := excess(out, rate); over > float64(burst+room)+rounding {
			t.Fatalf("%.0f bytes more than the rate, at most %.0f", over, float64(burst+room)+rounding)
		}
	})
}

// If classes are late, a heavy class may be away for the instant in which a light class is charged. The light class is
// then promised the whole rate, so each time its sockets are early by a chunk. The intervals between these times grow,
// because the promise is for all that the class owes. The sockets gain less than 3% in the long run.
func TestSumWithLateClasses(t *testing.T) {
	checkBench(t, 1_000_000, func(t *rapid.T, b *bench) {
		rate, burst := b.rate, b.burst
		senders, room, _ := crowd(t, rate, []uint64{0, 0, 3000, 300_000})
		out := b.run(senders, 1<<63, 1500)
		var bytes uint64
		for _, c := range out {
			bytes += c.bytes
		}
		if over, most := excess(out, rate), float64(burst+2*room)+0.03*float64(bytes); over > most {
			t.Fatalf("%.0f bytes more than the rate, at most %.0f", over, most)
		}
	})
}

// No bytes are lost: the charged bytes are those that the clock has served up to its own time, and those that the
// classes owe. This holds while classes start, stop and are late.
func TestKernelConserves(t *testing.T) {
	checkBench(t, 1_000_000, func(t *rapid.T, b *bench) {
		rate := b.rate
		senders, _, sum := crowd(t, rate, []uint64{0, 0, 3000, 300_000})
		weight, finish := map[uint64]uint32{}, map[uint64]uint64{}
		for _, s := range senders {
			weight[s.class] = s.weight
		}
		var bytes uint64
		for n := range rapid.IntRange(1, 200).Draw(t, "chunks") {
			s := slices.MinFunc(senders, func(a, b *sender) int { return cmp.Compare(a.next, b.next) })
			size := s.chunk()
			s.next = b.charge(s.class, s.weight, size, s.next)
			if s.late != nil {
				s.next += s.late()
			}
			bytes += size
			finish[s.class] = b.last.Finish
			known := float64(rate) * float64(b.last.TimeNs-bootNS) / 1e9
			for id, f := range finish {
				if ahead := int64(f - b.last.Vtime); ahead > 0 {
					known += float64(ahead) / (1 << clocktest.VTimeShift) * float64(weight[id])
				}
			}
			rounding := float64(n+1)*2*float64(sum)/(1<<clocktest.VTimeShift) + 2*float64(rate)/1e9 + 1 + known*1e-9
			if float64(bytes) > known+rounding {
				t.Fatalf("chunk %d: %d bytes charged, %.0f served and owed", n, bytes, known)
			}
		}
	})
}

// A clock cannot count 45,000 classes of default weight. Their sum keeps to the rate nevertheless.
func TestMoreClassesThanCounted(t *testing.T) {
	r := open(t)
	const rate, classes, chunk = 1_000_000_000, 45_000, 1500
	b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
	defer b.close()
	var senders []*sender
	for id := range uint64(classes) {
		senders = append(senders, &sender{class: id, weight: clocktest.DefaultWeight, chunk: fixed(chunk), next: bootNS})
	}
	out := b.run(senders, 1<<63, 6*classes)
	if got := rateOf(out, classes) / rate; got > 1.001+2.0/5 { // two chunks a class: see crowd
		t.Fatalf("%.3f of the rate", got)
	}
	const long = 5 * classes
	first := out[classes].at
	window := float64(out[len(out)-1].at - first)
	if most := (2*classes*chunk + rate*window/1e9) * 1.001; float64(long*chunk) > most {
		t.Fatalf("%d bytes, at most %.0f", long*chunk, most)
	}
}
