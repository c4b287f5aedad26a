package change

import (
	"slices"
	"testing"
	"time"
)

func TestSettled(t *testing.T) {
	const limit = 512 << 10
	high, good := slices.Repeat([]float64{10 * limit}, 7), slices.Repeat([]float64{limit}, 60)
	if got := settled(append(high, good...), limit); got != 70*time.Millisecond {
		t.Errorf("settled after %v, want 70 ms", got)
	}
	if got := settled(slices.Repeat([]float64{2 * limit}, 100), limit); got >= 0 {
		t.Errorf("settled after %v at twice the limit", got)
	}
}
