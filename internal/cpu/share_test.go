package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCeiling(t *testing.T) {
	for n := 1; n <= 400; n++ {
		s := Ceiling(n)
		require.InEpsilon(t, float64(n)/100, float64(s.SliceNS)/float64(s.PeriodNS), 1e-6, "n = %d", n)
		require.GreaterOrEqual(t, s.SliceNS, uint64(leastSlice), "n = %d", n)
		require.LessOrEqual(t, s.PeriodNS, uint64(1e9), "the kernel's longest period")
		require.EqualValues(t, OrdinaryWeight, s.Weight)
	}
	require.Equal(t, Share{SliceNS: 4e6, PeriodNS: 400e6, Weight: OrdinaryWeight}, Ceiling(1))
	require.Equal(t, Share{SliceNS: 6e6, PeriodNS: 20e6, Weight: OrdinaryWeight}, Ceiling(30))
}

func TestPriority(t *testing.T) {
	require.Zero(t, Nice(0))
	require.Equal(t, 19, Nice(LeastPower))
	require.Equal(t, Share{Weight: OrdinaryWeight}, Priority(0))
	require.EqualValues(t, 15, Priority(LeastPower).Weight) // the kernel's weight for nice 19
	for n := LeastPower; n < 0; n++ {
		require.LessOrEqual(t, Priority(n).Weight, Priority(n+1).Weight)
		require.Zero(t, Priority(n).SliceNS)
	}
}

func TestWeightV2(t *testing.T) {
	require.EqualValues(t, 100, weightV2(OrdinaryWeight))
	require.EqualValues(t, 10000, weightV2(MostWeight))
	require.EqualValues(t, 1, weightV2(LeastWeight))
	require.EqualValues(t, 1, weightV2(Priority(LeastPower).Weight))
	require.EqualValues(t, 10000, weightV2(math.MaxUint32))
}
