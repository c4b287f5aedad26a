package stat_test

import (
	"math/rand/v2"
	"testing"

	"github.com/netnice/netnice/lab/internal/stat"
)

func TestOf(t *testing.T) {
	got := stat.Of([]float64{4, 1, 3, 2})
	want := stat.Spread{N: 4, Min: 1, Median: 2.5, Max: 4, Mean: 2.5, SD: 1.2909944487358056}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if one := stat.Of([]float64{7}); one.SD != 0 || one.Median != 7 {
		t.Errorf("of one value: %+v", one)
	}
	if none := stat.Of(nil); none != (stat.Spread{}) {
		t.Errorf("of none: %+v", none)
	}
}

// About 95 intervals of a hundred samples of a known distribution hold its median.
func TestBootstrapCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	covered := 0
	for range 100 {
		values := make([]float64, 60)
		for i := range values {
			values[i] = random.NormFloat64()
		}
		i := stat.Bootstrap(values)
		if i.Low <= 0 && 0 <= i.High {
			covered++
		}
		if i.Low > i.Median || i.Median > i.High {
			t.Fatalf("interval %+v", i)
		}
	}
	if covered < 85 {
		t.Errorf("%d of 100 intervals hold the median", covered)
	}
}
