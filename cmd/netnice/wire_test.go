package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/cli"
)

// Each command that runs a part of netnice in its own process has that part.
func TestPartsAreWhole(t *testing.T) {
	of := reflect.ValueOf(app().Parts)
	for i := range of.NumField() {
		require.False(t, of.Field(i).IsNil(), of.Type().Field(i).Name)
	}
}

// A daemon that finds another one names the command that ends that one, with its socket where that is known.
func TestAnotherNetnice(t *testing.T) {
	inUse := fmt.Errorf("come up alone: %w", &bpf.InUseError{Dir: "/sys/fs/cgroup"})
	up := fmt.Errorf("open: %w", &bpf.UpError{CgroupRoot: "/sys/fs/cgroup", PinDir: "/sys/fs/bpf/other"})
	for _, c := range []struct {
		err                   error
		lock, socket, message string
		hints                 []string
	}{
		{inUse, "/sys/fs/cgroup", "", "come up alone: /sys/fs/cgroup is in use by another netnice daemon", []string{"pgrep -af", "sudo netnice --socket ITS_SOCKET down"}},
		{inUse, "/sys/fs/cgroup", "/run/a.sock", "come up alone: /sys/fs/cgroup is in use by another netnice daemon", []string{"sudo netnice --socket /run/a.sock down"}},
		{up, "/sys/fs/bpf/other", "/run/b.sock", "netnice is up already, with its programs in /sys/fs/bpf/other", []string{"netnice --socket /run/b.sock ...", "sudo netnice down --pin-dir /sys/fs/bpf/other"}},
	} {
		err := besideAnother(c.err, func(lock string) string {
			require.Equal(t, c.lock, lock)
			return c.socket
		})
		var answer *api.Error
		require.ErrorAs(t, err, &answer)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.message, answer.Message)
		for _, hint := range c.hints {
			require.Contains(t, answer.Hint, hint)
		}
	}
	require.ErrorIs(t, unix.EIO, besideAnother(unix.EIO, nil), "any other error stays as it is")
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
	require.Equal(t, r.Socket, byLocks{}.of(at.PinDir))

	require.NoError(t, folder.Close())
	require.NoError(t, byLocks{}.SignalDaemon(r, syscall.SIGKILL, at), "it holds no lock any more, and lives")
}
