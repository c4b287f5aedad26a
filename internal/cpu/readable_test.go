package cpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The service has a umask that excludes other users, and programs in a group can still read its files.
func TestGroupsAreReadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	defer unix.Umask(unix.Umask(0o077))
	require.NoError(t, MakeReadable(dir))
	st, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), st.Mode().Perm())
	require.ErrorIs(t, MakeReadable(dir), os.ErrExist)
}
