package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// proc is a folder like /proc, with one process that has a file open and a lock on it.
type proc struct {
	t   *testing.T
	dir string
}

func (p proc) process(open, comm, cmdline, environ string) {
	p.t.Helper()
	dir := filepath.Join(p.dir, "11")
	require.NoError(p.t, os.MkdirAll(filepath.Join(dir, "fd"), 0o755))
	if open != "" {
		require.NoError(p.t, os.Symlink(open, filepath.Join(dir, "fd", "7")))
	}
	for name, text := range map[string]string{"comm": comm + "\n", "cmdline": strings.ReplaceAll(cmdline, " ", "\x00") + "\x00", "environ": environ} {
		require.NoError(p.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

func TestFindRunning(t *testing.T) {
	base := t.TempDir()
	locked, other := filepath.Join(base, "netnice.lock"), filepath.Join(base, "other")
	for _, path := range []string{locked, other} {
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	var st unix.Stat_t
	require.NoError(t, unix.Stat(locked, &st))
	device := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
	line := func(kind, device string, pid int, inode uint64) string {
		return fmt.Sprintf("1: %s WRITE %d %s:%d 0 EOF\n", kind, pid, device, inode)
	}
	const flock, waits, posix = "FLOCK  ADVISORY ", "-> FLOCK  ADVISORY ", "POSIX  ADVISORY "
	for name, c := range map[string]struct {
		table   string
		process func(proc)
		want    Running
	}{
		"nobody": {table: line(flock, device, 11, st.Ino+1)},
		"the daemon": {
			table:   line(flock, device, 9, st.Ino+1) + line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "/usr/bin/netnice daemon", "HOME=/root") },
			want:    Running{PID: 11, Socket: DefaultSocketPath},
		},
		"its socket by a flag": {
			table: line(flock, device, 11, st.Ino),
			process: func(p proc) {
				p.process(locked, "exe", "netnice daemon --socket /run/x/s --on-demand", "NETNICE_SOCKET=/run/y")
			},
			want: Running{PID: 11, Socket: "/run/x/s"},
		},
		"its socket by a flag, in one word": {
			table:   line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "/opt/nn daemon --socket=/run/x/s", "") },
			want:    Running{PID: 11, Socket: "/run/x/s"},
		},
		"its socket by the environment": {
			table:   line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "netnice daemon", "A=b\x00NETNICE_SOCKET=/run/y\x00") },
			want:    Running{PID: 11, Socket: "/run/y"},
		},
		"a socket below some folder": {
			table:   line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "netnice daemon --socket s", "") },
			want:    Running{PID: 11},
		},
		"another device": { // btrfs is an example: the open file decides
			table:   line(flock, "fe:00", 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "netnice daemon", "") },
			want:    Running{PID: 11, Socket: DefaultSocketPath},
		},
		"the same number on another file system": {
			table:   line(flock, "fe:00", 11, st.Ino),
			process: func(p proc) { p.process(other, "netnice", "netnice daemon", "") },
		},
		"a number that is another process's by now": {
			table:   line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(other, "netnice", "netnice daemon", "") },
		},
		"somebody else's lock": {
			table:   line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "bash", "bash daemon", "") },
		},
		"a command of netnice's": {
			table:   line(flock, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "netnice ls", "") },
		},
		"who waits": {
			table:   line(waits, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "netnice daemon", "") },
		},
		"another kind of lock": {
			table:   line(posix, device, 11, st.Ino),
			process: func(p proc) { p.process(locked, "netnice", "netnice daemon", "") },
		},
		"another pid namespace": {table: line(flock, device, 0, st.Ino)},
		"nonsense":              {table: "1: FLOCK\n\n: : : : : :\n1: FLOCK  ADVISORY  WRITE x 1 2 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := proc{t, t.TempDir()}
			require.NoError(t, os.WriteFile(filepath.Join(p.dir, "locks"), []byte(c.table), 0o644))
			if c.process != nil {
				c.process(p)
			}
			got, found := findRunning(p.dir, []string{filepath.Join(base, "missing"), locked})
			require.Equal(t, c.want, got)
			require.Equal(t, c.want.PID != 0, found)
		})
	}
}

// The kernel, not the content of the file, decides which process holds a lock. The error names a process that is not a
// netnice daemon by its program.
func TestLockOfAnother(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	require.NoError(t, os.MkdirAll(opts.StateDir, 0o755))
	other := exec.Command("flock", "--no-fork", opts.StateDir, "sleep", "60")
	require.NoError(t, other.Start())
	t.Cleanup(func() { end(other) })
	var h lockHolder
	require.Eventually(t, func() bool {
		var ok bool
		h, ok = holderOf(procFolder, opts.StateDir)
		return ok && h.name == "sleep"
	}, soon, poll)
	require.Equal(t, lockHolder{pid: other.Process.Pid, name: "sleep"}, h)
	_, found := FindRunning(opts.StateDir)
	require.False(t, found)
	e := testutil.RequireFault(t, api.CodeConflict, Run(context.Background(), opts))
	require.Contains(t, e.Message, fmt.Sprintf("process %d (sleep), which is no netnice daemon", other.Process.Pid))
	require.Contains(t, e.Hint, fmt.Sprintf("sudo kill %d", other.Process.Pid))
	require.NoError(t, SignalRunning(Running{PID: other.Process.Pid}, unix.SIGKILL, opts.StateDir))
	again, held := holderOf(procFolder, opts.StateDir)
	require.True(t, held, "it is left alone")
	require.Equal(t, h, again)
}
