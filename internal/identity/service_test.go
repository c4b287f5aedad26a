package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The value of ExecStart on D-Bus begins with the path of the program.
func TestFirstProgram(t *testing.T) {
	command := []any{"/usr/bin/netnice", []string{"/usr/bin/netnice", "daemon"}, false, uint64(0), uint64(0), uint64(0), uint64(0), uint32(0), int32(0), int32(0)}
	for _, commands := range []any{[][]any{command}, [][]any{command, {"/bin/true"}}} {
		path, err := firstProgram(commands)
		require.NoError(t, err)
		require.Equal(t, "/usr/bin/netnice", path)
	}
	for _, commands := range []any{nil, "x", [][]any{}, [][]any{{}}, [][]any{{7}}} {
		_, err := firstProgram(commands)
		require.ErrorIs(t, err, ErrNotFound)
	}
}
