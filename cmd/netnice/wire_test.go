package main

import (
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/cli"
)

// Each command that runs a part of netnice in its own process has that part.
func TestPartsAreWhole(t *testing.T) {
	of := reflect.ValueOf(app().Parts)
	for i := range of.NumField() {
		require.False(t, of.Field(i).IsNil(), of.Type().Field(i).Name)
	}
}

// A daemon is found by any of its locks, and no other process is.
func TestDaemonIsFoundByItsLocks(t *testing.T) {
	dir := t.TempDir()
	at := cli.DaemonPlace{Socket: filepath.Join(dir, "s.sock"), StateDir: filepath.Join(dir, "state"), PinDir: filepath.Join(dir, "pins")}
	require.Equal(t, []string{filepath.Join(dir, "s.lock"), at.StateDir, at.PinDir}, locks(at))
	_, found := byLocks{}.Daemon(at)
	require.False(t, found, "nobody holds a lock")

	// A process counts itself as the daemon of the locks that it holds.
	require.NoError(t, os.Mkdir(at.PinDir, 0o755))
	folder, err := os.Open(at.PinDir)
	require.NoError(t, err)
	defer folder.Close()
	require.NoError(t, unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	r, found := byLocks{}.Daemon(at)
	require.True(t, found)
	require.Equal(t, os.Getpid(), r.PID)

	require.NoError(t, folder.Close())
	require.NoError(t, byLocks{}.SignalDaemon(r, syscall.SIGKILL, at), "it holds no lock any more, and lives")
}
