package narrow

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/datagram"
)

// The numbers of the arrived datagrams give the sent and lost ones of each step, beyond the step before.
func TestCountBySteps(t *testing.T) {
	begin := testbed.Instant(time.Minute)
	f := Figures{Rates: make([]float64, 3), from: begin}
	require.NoError(t, f.countBySteps(func(to testbed.Instant) (datagram.Arrivals, error) {
		return map[time.Duration]datagram.Arrivals{
			step:     {Count: 30, Lost: 4},
			2 * step: {Count: 30, Lost: 4}, // nothing arrived
			3 * step: {Count: 70, Lost: 24},
		}[to.Sub(begin)], nil
	}))
	require.Equal(t, []float64{34, 0, 60}, f.SentBy)
	require.Equal(t, []float64{4, 0, 20}, f.LostBy)

	failed := errors.New("gone")
	require.ErrorIs(t, f.countBySteps(func(testbed.Instant) (datagram.Arrivals, error) { return datagram.Arrivals{}, failed }), failed)
}
