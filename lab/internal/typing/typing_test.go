package typing

import (
	"math"
	"slices"
	"testing"
)

func TestCompute(t *testing.T) {
	f, trips := compute("x", []measured{
		{trips: []float64{1, 3}, rates: []float64{limit / 4, limit / 4}},
		{trips: []float64{8}, rates: []float64{limit / 2, limit}},
	})
	if !slices.Equal(trips, []float64{1, 3, 8}) || !slices.Equal(f.RunMeans, []float64{2, 8}) || f.RTT.Mean != 4 {
		t.Errorf("trips %v, means of runs %v, mean %v", trips, f.RunMeans, f.RTT.Mean)
	}
	if f.Ratio != 1 || f.Downloads.Max != 1.5*limit {
		t.Errorf("downloads %v of the limit, at most %v", f.Ratio, f.Downloads.Max)
	}
	// The rates are three parts to five.
	if want := 64.0 / (2 * 34); math.Abs(f.Jain-want) > 1e-9 {
		t.Errorf("Jain %v, want %v", f.Jain, want)
	}
}
