package hostpath

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// arrivals returns the arrival times of a train's packets, in ns: atOnce packets 15 us apart, then the others with gaps
// of gapUS.
func arrivals(atOnce, slowly int, gapUS int64) (at []int64) {
	for i := range atOnce {
		at = append(at, int64(i)*15_000)
	}
	for range slowly {
		at = append(at, at[len(at)-1]+gapUS*1000)
	}
	return at
}

// The rate at which packets leave a token bucket is not the path's rate.
func TestTrainRate(t *testing.T) {
	for _, c := range []struct {
		name    string
		at      []int64
		want    float64
		emptied bool
	}{
		{"a line", arrivals(1, 19, 800), 1.25e6, false},
		{"16 KB in a bucket", arrivals(16, 4, 800), 1.25e6, true},
		{"of 70 packets 64 KB in a bucket", arrivals(62, 8, 8000), 125e3, true},
		{"all in a bucket", arrivals(20, 0, 0), 1000e6 / 15, false},
		{"most were lost", arrivals(3, 0, 0), 0, false},
		{"nothing came", nil, 0, false},
		{"all at once", []int64{5, 5, 5, 5, 5, 5}, 0, false},
	} {
		rate, emptied := trainRate(c.at, 1000)
		require.InDelta(t, c.want, rate, c.want/50, c.name)
		require.Equal(t, c.emptied, emptied, c.name)
	}
}
