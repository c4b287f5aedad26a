package pulse

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Every loop sees each tick, and a loop that was busy sees one tick for all that it has missed.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		quick, busy := p.Beat(), p.Beat()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx, time.Second)
		began := time.Now()
		for i := range 3 {
			require.Equal(t, time.Duration(i+1)*time.Second, (<-quick).Sub(began))
		}
		synctest.Wait()
		require.Equal(t, time.Second, (<-busy).Sub(began))
		require.Empty(t, busy)
	})
}
