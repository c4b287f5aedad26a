package testbed

import (
	"cmp"
	"math"
	"slices"
)

// Jain returns Jain's fairness index of the shares: 1 when all are equal, 1/n
// when one has everything, 1 for no shares at all.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Percentile returns the smallest value that at least p percent (0..100) of the values do not exceed. It returns the
// zero value if there are none. It does not change values.
func Percentile[T cmp.Ordered](values []T, p float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Sum returns the sum of the values.
func Sum(values []float64) float64 {
	var s float64
	for _, v := range values {
		s += v
	}
	return s
}
