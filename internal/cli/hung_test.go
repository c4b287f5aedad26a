package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/client"
)

// procOf makes a /proc with one process, in a state such as "T (stopped)".
func procOf(t *testing.T, pid int, state string) string {
	t.Helper()
	proc := t.TempDir()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	stat := fmt.Sprintf("%d (netnice) %c 1 7 7 0 -1 4194560 0 0 0 0 150 50 0 0 20 0 2 0 5 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", pid, state[0])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte("Name:\tnetnice\nState:\t"+state+"\nTracerPid:\t9\n"), 0o644))
	return proc
}

// socketPath has room in its folder for a socket, whose path has at most 107 bytes.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nn")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "netnice.sock")
}

// ask runs a reading command that waits for a fifth of a second at most.
func ask(t *testing.T, a *App) (message, hint string, code int) {
	t.Helper()
	begin := time.Now()
	err := a.readFor(t.Context(), 200*time.Millisecond, func(ctx context.Context, c *client.Client) error {
		_, err := c.Status(ctx)
		return err
	})
	require.Error(t, err)
	require.Less(t, time.Since(begin), 10*time.Second)
	return explain(err)
}

// silentDaemon returns an application whose daemon takes calls and never answers.
func silentDaemon(t *testing.T) *App {
	t.Helper()
	a, _ := testApp()
	a.socket = socketPath(t)
	l, err := net.Listen("unix", a.socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return a
}

// A daemon takes calls and never answers. The kernel names the process that listens, and /proc has its activity.
func TestSilentDaemon(t *testing.T) {
	a := silentDaemon(t)
	pid := os.Getpid()
	a.proc = procOf(t, pid, "T (stopped)")
	message, hint, code := ask(t, a)
	require.Equal(t, fmt.Sprintf("the daemon did not answer in time: its process %d is stopped (SIGSTOP, or ^Z in its terminal)", pid), message)
	require.Contains(t, hint, fmt.Sprintf("sudo kill -CONT %d\n", pid))
	require.Equal(t, exitNoDaemon, code)

	a.proc = t.TempDir() // an empty folder stands for a /proc that the caller may not read
	message, hint, _ = ask(t, a)
	require.Equal(t, "the daemon did not answer in time", message)
	require.Equal(t, logHint, hint)
}

// A daemon that takes no calls any more is found by its lock.
func TestDaemonThatTakesNoCalls(t *testing.T) {
	a, _ := testApp()
	a.socket = socketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: a.socket}))
	require.NoError(t, unix.Listen(fd, 0)) // one connection may wait
	first, err := net.Dial("unix", a.socket)
	require.NoError(t, err)
	defer first.Close()
	a.proc = procOf(t, 4711, "t (tracing stop)")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(a.socket), "netnice.lock"), []byte("4711\n"), 0o644))
	message, _, _ := ask(t, a)
	require.Equal(t, "so many calls wait for the daemon that it can take no more: its process 4711 is held by a debugger, process 9", message)
}
