package shaping

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A setting that waits holds up nobody for long, and not too many wait.
func TestSettings(t *testing.T) {
	s, broken := newSettings(), errors.New("broken")
	done, err := s.within(time.Minute, func() error { return nil })
	require.True(t, done)
	require.NoError(t, err)
	done, err = s.within(time.Minute, func() error { return broken })
	require.False(t, done)
	require.ErrorIs(t, err, broken)
	gate, called := make(chan struct{}), make(chan struct{}, 2*mostSettings)
	wait := func() error {
		called <- struct{}{}
		<-gate
		return nil
	}
	begin := time.Now()
	for range 2 * mostSettings {
		done, err = s.within(time.Millisecond, wait)
		require.False(t, done)
		require.NoError(t, err)
	}
	require.Less(t, time.Since(begin), 5*time.Second)
	require.Len(t, called, mostSettings)
	close(gate)
	require.Eventually(t, func() bool {
		done, _ := s.within(time.Minute, func() error { return nil })
		return done
	}, 5*time.Second, time.Millisecond)
}
