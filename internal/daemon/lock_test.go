package daemon

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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

// The threads of a killed daemon end one after the other. Until the last one has ended the lock is held, though no
// process is seen to hold it. Here the program that took the lock has ended, and another one has the file.
func TestLockOfAnEndingDaemon(t *testing.T) {
	testutil.RequireRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	require.NoError(t, exec.Command("sh", "-c", `exec 9>"$1"; flock 9; sleep 0.3 >&- 2>&- &`, "sh", path).Run())
	_, known := holderOf(procFolder, path)
	require.False(t, known)
	begin := time.Now()
	l, err := acquire(dir, "lock")
	require.NoError(t, err)
	require.Greater(t, time.Since(begin), 100*time.Millisecond, "the lock was held")
	require.NoError(t, l.release(false))
}
