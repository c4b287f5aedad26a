package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/source/prefixlists"
)

// Without a running daemon the whole state is removed, including lists of prefixes. The file of CPU shares stays where
// the shares could not be lifted.
func TestForgetState(t *testing.T) {
	dir := t.TempDir()
	write := func() {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, prefixlists.Folder), 0o700))
		for _, name := range append([]string{filepath.Join(prefixlists.Folder, "0123")}, stateFiles...) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}\n"), 0o600))
		}
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	write()
	require.NoError(t, ForgetState(dir, true))
	require.Equal(t, []string{cpushare.FileName}, left())
	write()
	require.NoError(t, ForgetState(dir, false))
	require.Empty(t, left())
	require.NoError(t, ForgetState(dir, false), "nothing is there")
}
