package shaping

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
)

func TestSlots(t *testing.T) {
	var s slots
	for want := uint32(1); want < bpf.MaxDevices; want++ {
		slot, err := s.free()
		require.NoError(t, err)
		require.Equal(t, want, slot)
		s.take(slot)
		s.take(slot) // the same device is entered again
	}
	before := s
	for range 3 {
		_, err := s.free()
		require.ErrorIs(t, err, errTooMany)
	}
	require.Equal(t, before, s, "a refusal looks for nothing")

	s.release(7)
	s.release(7)
	s.release(9)
	for _, want := range []uint32{7, 9} {
		slot, err := s.free()
		require.NoError(t, err)
		require.Equal(t, want, slot)
		s.take(slot)
	}
	_, err := s.free()
	require.ErrorIs(t, err, errTooMany)
}

// A slot that was given and not taken, as its device could not be entered, is not lost; and it is
// not the next, of which packets may be under way.
func TestSlotsGoRound(t *testing.T) {
	var s slots
	first, err := s.free()
	require.NoError(t, err)
	second, err := s.free()
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	for range bpf.MaxDevices {
		again, err := s.free()
		require.NoError(t, err)
		if again == first {
			return
		}
	}
	t.Errorf("slot %d is lost", first)
}

// What former releases or nobody could have written is no slot.
func TestSlotsOutOfRange(t *testing.T) {
	var s slots
	for _, slot := range []uint32{0, bpf.MaxDevices, 1 << 31} {
		s.take(slot)
		s.release(slot)
	}
	require.Equal(t, slots{}, s)
}
