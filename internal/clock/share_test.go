package clock

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// A backlogged class that always returns at its departure uses at least 0.999 of the time, whatever the rate, the
// weight and the chunk.
func TestWorkConservation(t *testing.T) {
	r := open(t)
	for rate := uint64(1); rate <= 1e11; rate *= 10 {
		for _, weight := range []uint32{1, 10, 100, 10000} {
			for _, chunk := range []uint64{52, 1500, 65536} {
				t.Run(fmt.Sprintf("%d bytes per s, weight %d, chunks of %d", rate, weight, chunk), func(t *testing.T) {
					b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
					defer b.close()
					got := b.run([]*sender{{class: 1, weight: weight, chunk: fixed(chunk), next: bootNS}}, math.MaxInt64, 300)
					// A chunk of 52 bytes takes half a ns at 1e11 bytes/s.
					tolerance := 0.001 + 2/(float64(timeOf(300*chunk, rate))+1)
					require.InDelta(t, 1, rateOf(got, 0)/float64(rate), tolerance)
				})
			}
		}
	}
}

// Many sockets of one class owe more than the finest slots hold. They get the rate, too, and a socket that is left
// alone does not wait for the whole debt again.
func TestDeepBacklog(t *testing.T) {
	r := open(t)
	const rate, sockets, chunk = 1_000_000, 64, 65536
	for _, weight := range []uint32{1, 10, 100, 10000} {
		b := newBench(t, r, rate, 0, clocktest.FirstVirtualTime)
		last := uint64(0)
		for range sockets {
			last = b.charge(1, weight, chunk, bootNS)
		}
		promised := timeOf(sockets*chunk, rate)
		require.InDelta(t, promised, last-bootNS, 1e6, "weight %d", weight)
		again := b.charge(1, weight, chunk, last)
		require.InDelta(t, timeOf(chunk, rate), again-last, 1e6, "weight %d", weight)
		b.close()
	}
}

// Backlogged classes share by weight within 0.5%, whatever their chunks, rates and numbers of sockets.
func TestShareByWeight(t *testing.T) {
	checkBench(t, 0, func(t *rapid.T, b *bench) {
		rate := b.rate
		n := rapid.IntRange(2, 4).Draw(t, "classes")
		var senders []*sender
		weight := make([]uint32, n)
		chunk := make([]uint64, n)
		sockets := make([]int, n)
		sum := uint64(0)
		for i := range n {
			// The weights are within one order of magnitude: a class with 1/10000 sends too rarely to be measured.
			weight[i] = rapid.Uint32Range(50, 500).Draw(t, "weight")
			chunk[i] = rapid.Uint64Range(1000, 65536).Draw(t, "chunk")
			sockets[i] = rapid.SampledFrom([]int{1, 1, 8, 64}).Draw(t, "sockets")
			sum += uint64(weight[i])
			for range sockets[i] {
				senders = append(senders, &sender{class: uint64(i), weight: weight[i], chunk: fixed(chunk[i]), next: bootNS})
			}
		}
		// The measurement begins when all classes are in step. It lasts until one chunk more or less is within the
		// tolerance.
		var each uint64
		for i := range n {
			each = max(each, chunk[i]*uint64(sockets[i]+1)*sum/uint64(weight[i]))
		}
		settled := bootNS + timeOf(4*each, rate)
		b.run(senders, settled, math.MaxInt)
		for _, s := range senders {
			s.bytes = 0
		}
		until := settled + timeOf(100*each, rate)
		const most = 40_000
		got := b.run(senders, until, most)
		took := got[len(got)-1].at - settled
		bytes := make([]uint64, n)
		for _, s := range senders {
			bytes[s.class] += s.bytes
		}
		for i := range n {
			want := float64(rate) * float64(took) / 1e9 * float64(weight[i]) / float64(sum)
			tolerance := 0.005 + float64(chunk[i]*uint64(sockets[i]))/want
			if off := math.Abs(float64(bytes[i])/want - 1); off > tolerance {
				t.Fatalf("class %d of weight %d has %.4f of its share, tolerance %.4f", i, weight[i], float64(bytes[i])/want, tolerance)
			}
		}
	})
}
