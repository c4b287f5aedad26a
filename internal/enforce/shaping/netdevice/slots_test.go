package netdevice

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
)

func TestSlots(t *testing.T) {
	var s Slots
	for want := uint32(1); want < bpf.MaxDevices; want++ {
		slot, err := s.Free()
		require.NoError(t, err)
		require.Equal(t, want, slot)
		s.Take(slot)
		s.Take(slot) // the same device is entered again
	}
	before := s
	for range 3 {
		_, err := s.Free()
		require.ErrorIs(t, err, ErrTooMany)
	}
	require.Equal(t, before, s, "a refusal looks for nothing")

	s.Release(7)
	s.Release(7)
	s.Release(9)
	for _, want := range []uint32{7, 9} {
		slot, err := s.Free()
		require.NoError(t, err)
		require.Equal(t, want, slot)
		s.Take(slot)
	}
	_, err := s.Free()
	require.ErrorIs(t, err, ErrTooMany)
}

// TestSlotsGoRound checks that a slot is not lost if it was given and not taken, as its device could not be entered. It
// is not the next slot to be given either, since packets with it may be under way.
func TestSlotsGoRound(t *testing.T) {
	var s Slots
	first, err := s.Free()
	require.NoError(t, err)
	second, err := s.Free()
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	for range bpf.MaxDevices {
		again, err := s.Free()
		require.NoError(t, err)
		if again == first {
			return
		}
	}
	t.Errorf("slot %d is lost", first)
}

// TestSlotsOutOfRange checks that slots are ignored which only another release, or none, could have written.
func TestSlotsOutOfRange(t *testing.T) {
	var s Slots
	for _, slot := range []uint32{0, bpf.MaxDevices, 1 << 31} {
		s.Take(slot)
		s.Release(slot)
	}
	require.Equal(t, Slots{}, s)
}
