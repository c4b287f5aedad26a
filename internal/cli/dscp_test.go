package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDSCP(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "63": 63, "EF": 46, "af41": 34, "af13": 14, "cs0": 0, "cs7": 56, "le": 1, "none": -1} {
		got, err := parseDSCP(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "64", "-1", "af14", "cs8", "4 1"} {
		_, err := parseDSCP(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "af41", dscpText(34))
	require.Equal(t, "63", dscpText(63))
}
