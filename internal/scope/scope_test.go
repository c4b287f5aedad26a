package scope

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The umask of the service shuts out others; programs in a scope read its files all the same.
func TestScopesAreReadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	defer unix.Umask(unix.Umask(0o077))
	for range 2 { // it may exist already
		require.NoError(t, makeCgroup(dir))
		st, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), st.Mode().Perm())
	}
}
