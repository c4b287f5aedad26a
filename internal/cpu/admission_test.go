package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLeft(t *testing.T) {
	for _, c := range []struct {
		promised []float64
		capacity float64
		left     float64
	}{
		{nil, 100, 100},
		{nil, 400, 400},
		{[]float64{30}, 200, 170},
		{[]float64{60, 60}, 200, 40}, // each program has a processor of its own
		{[]float64{50, 50, 50}, 200, 50},
		{[]float64{30, 60, 70}, 200, 40},
		{[]float64{100, 100}, 200, 0},
		{[]float64{150}, 200, 50},
		{[]float64{250}, 400, 150},
		{[]float64{20, 20, 20, 20, 20}, 200, 100},
		{[]float64{90, 90, 20}, 200, 0}, // more than fits, promised when there were more processors
	} {
		require.InDelta(t, c.left, Left(c.promised, c.capacity), 1e-9, "%v of %v", c.promised, c.capacity)
	}
}
