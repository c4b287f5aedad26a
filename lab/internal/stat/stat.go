// Package stat computes the figures of repeated measurements: centre, spread
// and confidence. It owns no measurement.
package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Spread summarizes repeated measurements.
type Spread struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	Mean   float64 `json:"mean"`
	SD     float64 `json:"sd"`
}

// Of returns the spread of the values, zero for none.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := Spread{N: len(values), Min: slices.Min(values), Max: slices.Max(values), Median: Median(values)}
	for _, v := range values {
		s.Mean += v / float64(len(values))
	}
	if len(values) > 1 {
		var squares float64
		for _, v := range values {
			squares += (v - s.Mean) * (v - s.Mean)
		}
		s.SD = math.Sqrt(squares / float64(len(values)-1))
	}
	return s
}

// Median returns the middle value, the mean of the two middle ones of an even number, or 0 for none. It does not
// change values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Interval is an estimate with its 95% confidence interval.
type Interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"`
}

// rounds of the bootstrap; the interval moves by less than a tenth of its
// width from one seed to another.
const rounds = 4000

// Bootstrap returns the median of the values with its 95% confidence interval
// by resampling (percentile method). The same values give the same interval.
func Bootstrap(values []float64) Interval {
	i := Interval{Median: Median(values), N: len(values)}
	if len(values) == 0 {
		return i
	}
	random := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, rounds)
	again := make([]float64, len(values))
	for r := range medians {
		for k := range again {
			again[k] = values[random.IntN(len(values))]
		}
		medians[r] = Median(again)
	}
	slices.Sort(medians)
	i.Low, i.High = medians[rounds*25/1000], medians[rounds*975/1000]
	return i
}
