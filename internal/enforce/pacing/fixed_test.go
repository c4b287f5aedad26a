package pacing

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFixedRatesAreParts(t *testing.T) {
	inf := math.Inf(1)
	at := func(node uint32, rate float64, child uint64, weight uint32) sharingHop {
		return sharingHop{node: node, rate: rate, child: child, weight: weight}
	}
	wants := func(hops ...sharingHop) *sharing { return &sharing{hops: hops, want: inf} }
	guaranteed, sliced := at(1, 1000, 7, 100), at(1, 1000, 7, 100)
	guaranteed.min, sliced.min, sliced.only = 500, 300, true
	for name, c := range map[string]struct {
		list []*sharing
		want []float64
	}{
		"programs, not connections": {
			[]*sharing{wants(at(1, 1000, 7, 100)), wants(at(1, 1000, 8, 100)), wants(at(1, 1000, 8, 100))},
			[]float64{500, 250, 250},
		},
		"by weight": {[]*sharing{wants(at(1, 1000, 7, 100)), wants(at(1, 1000, 8, 300))}, []float64{250, 750}},
		"guaranteed, and a part of the rest": {
			[]*sharing{wants(guaranteed), wants(at(1, 1000, 8, 300))}, []float64{625, 375},
		},
		"a slice and no more": {[]*sharing{wants(sliced), wants(at(1, 1000, 8, 100))}, []float64{300, 700}},
		"what one may not use the others have": {
			[]*sharing{wants(at(2, 100, 7, 100), at(1, 1000, 2, 100)), wants(at(1, 1000, 8, 100))}, []float64{100, 900},
		},
		"an inner limit is divided, too": {
			[]*sharing{wants(at(2, 800, 7, 100), at(1, 1000, 2, 100)), wants(at(2, 800, 8, 100), at(1, 1000, 2, 100)), wants(at(1, 1000, 9, 100))},
			[]float64{250, 250, 500},
		},
		"its own rate": {
			[]*sharing{{hops: []sharingHop{at(1, 1000, 7, 100)}, want: 50}, wants(at(1, 1000, 7, 100))}, []float64{50, 950},
		},
	} {
		divide(c.list)
		for i, s := range c.list {
			require.InDelta(t, c.want[i], s.want, 1e-6, "%s: connection %d", name, i)
		}
	}
}

// The division exceeds no limit, whatever the limits are. A connection that is alone uses its whole limit.
func TestFixedRatesFit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		rates := map[uint32]float64{}
		for node := uint32(1); node < 6; node++ {
			rates[node] = 1 + random.Float64()*1000
		}
		var list []*sharing
		for range 1 + random.IntN(12) {
			s := &sharing{want: math.Inf(1)}
			child := uint64(100 + random.IntN(5))
			for node := uint32(1); node < 6; node++ {
				if random.IntN(2) == 0 && node != 5 {
					continue
				}
				h := sharingHop{node: node, rate: rates[node], child: child, weight: 1 + uint32(random.IntN(300))}
				if random.IntN(4) == 0 {
					h.min, h.only = random.Float64()*100, random.IntN(2) == 0
				}
				s.hops = append(s.hops, h)
				child = uint64(node)
			}
			list = append(list, s)
		}
		divide(list)
		for node, rate := range rates {
			sum := 0.0
			for _, s := range list {
				for _, h := range s.hops {
					if h.node == node {
						sum += s.want
					}
				}
			}
			require.LessOrEqual(t, sum, rate*(1+1e-9))
		}
		for _, s := range list {
			require.GreaterOrEqual(t, s.want, 0.0)
			require.False(t, math.IsNaN(s.want))
		}
	}
}
