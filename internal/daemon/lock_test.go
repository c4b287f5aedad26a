package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

// A lock is free once it is released, though a process that was started meanwhile has its file for a moment.
func TestReleasedLockIsFree(t *testing.T) {
	testutil.RequireRoot(t)
	dir := t.TempDir()
	for name, take := range map[string]func() (*lock, error){
		"file":   func() (*lock, error) { return acquire(dir, "lock") },
		"folder": func() (*lock, error) { return acquireDir(dir) },
	} {
		l, err := take()
		require.NoError(t, err, name)
		_, err = take()
		require.Error(t, err, name)
		child, err := unix.Dup(int(l.file.Fd()))
		require.NoError(t, err, name)
		require.NoError(t, l.release(false), name)
		again, err := take()
		require.NoError(t, err, name)
		require.NoError(t, again.release(false), name)
		require.NoError(t, unix.Close(child), name)
	}
}
