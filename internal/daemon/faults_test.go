package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/statefile"
	"github.com/netnice/netnice/internal/testutil"
)

// These tests damage netnice's files and folders: combinations of a file, a fault, and whether a daemon runs. In all
// cases limits in force stay, no other limit appears, and the next command works or names the remedy.

// inForce returns the limits in the kernel, without the fields that cannot be compared.
func inForce(t testing.TB, fake *enforcetest.Kernel) map[string]enforce.NodeSpec {
	t.Helper()
	specs, err := fake.Nodes()
	require.NoError(t, err)
	list := make(map[string]enforce.NodeSpec, len(specs))
	for _, s := range specs {
		key := specKey(s.Kind, s.Subject)
		s = plan.Comparable(s)
		s.ID = 0
		list[key] = s
	}
	return list
}

func specKey(kind enforce.Kind, subject uint64) string { return fmt.Sprintf("%d %d", kind, subject) }

// withLimits starts a daemon with limits of several kinds and owners. One limit was changed, and one was lifted.
func withLimits(t *testing.T, opts Options, fake *enforcetest.Kernel) *harness {
	t.Helper()
	h := start(t, fake, opts)
	h.mustSet(root, "host", up(1e6))
	h.mustSet(root, "user:4242", up(2e6))
	h.mustSet(root, "user:4243", up(4e6))
	h.mustSet(auth.Actor{UID: 4244}, "user:4244", up(5e6))
	h.mustSet(root, "user:4242", up(3e6))
	h.mustSet(root, pidSubject(sleeper(t)), up(6e6))
	_, err := h.remove(root, "user:4243")
	require.NoError(t, err)
	require.Len(t, inForce(t, fake), 4)
	return h
}

// reached waits until the daemon answers on its socket, and checks that the modes are those of the start.
func (h *harness) reached() {
	h.t.Helper()
	c := client.New(h.opts.SocketPath)
	defer c.Close()
	h.eventually("it is found on its socket", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		s, err := c.Status(ctx)
		return err == nil && s.PID == os.Getpid()
	})
	for _, path := range Locks(h.opts.SocketPath, h.opts.StateDir) {
		h.eventually("it holds its locks", func() bool {
			holder, ok := holderOf(procFolder, path)
			return ok && holder.pid == os.Getpid()
		})
	}
	for path, mode := range map[string]fs.FileMode{h.opts.SocketPath: socketMode, h.opts.RunDir: dirMode, h.opts.StateDir: dirMode} {
		st, err := os.Stat(path)
		require.NoError(h.t, err)
		require.Equal(h.t, mode, st.Mode().Perm(), path)
	}
}

// alone checks that a second daemon is refused, whichever of the two locks it has in common with the first.
func (h *harness) alone() {
	h.t.Helper()
	for _, change := range []func(*Options){
		func(*Options) {},
		func(o *Options) { o.StateDir += "-other" },
		func(o *Options) { o.SocketPath, o.RunDir = o.SocketPath+".other/s", o.RunDir+"-other" },
	} {
		opts := h.opts
		change(&opts)
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		e := testutil.RequireFault(h.t, api.CodeConflict, Run(ctx, opts))
		cancel()
		require.Contains(h.t, e.Message, fmt.Sprintf("runs already (pid %d)", os.Getpid()))
	}
}

// written waits until the state on the disk equals the limits in force.
func (h *harness) written() {
	h.t.Helper()
	h.eventually("what is wanted is written", func() bool {
		s, err := desired.Load(h.opts.StateDir, h.boot)
		if err != nil || s == nil || s.Damage != nil || len(s.Nodes) != h.count() {
			return false
		}
		for _, n := range s.Nodes {
			spec, ok := h.fake.Spec(n.ID)
			if !ok || !plan.Same(spec, nodeOf(n).spec()) {
				return false
			}
		}
		return true
	})
}

// A running daemon restores missing files at once, so these functions replace a file in one step.

// put makes a file and puts it in the place of another.
func put(t *testing.T, path string, makeAt func(path string) error) {
	t.Helper()
	require.NoError(t, makeAt(path+".put"))
	require.NoError(t, os.Rename(path+".put", path))
}

// putFile puts a file in the place of a folder.
func putFile(t *testing.T, dir string) {
	t.Helper()
	former := dir + ".put"
	require.NoError(t, os.WriteFile(former, nil, 0o600))
	require.NoError(t, unix.Renameat2(unix.AT_FDCWD, former, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE))
	require.NoError(t, os.RemoveAll(former))
}

// removeFolder removes a folder and its content.
func removeFolder(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.Rename(dir, dir+".former"))
	require.NoError(t, os.RemoveAll(dir+".former"))
}

func TestFaultsWhileItRuns(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, o Options) (undo func()){
		"socket removed": func(t *testing.T, o Options) func() {
			require.NoError(t, os.Remove(o.SocketPath))
			return nil
		},
		"socket of somebody else in its place": func(t *testing.T, o Options) func() {
			var l *net.UnixListener
			put(t, o.SocketPath, func(path string) (err error) {
				l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
				return err
			})
			l.SetUnlinkOnClose(false)
			return func() { l.Close() }
		},
		"file in the socket's place": func(t *testing.T, o Options) func() {
			put(t, o.SocketPath, func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) })
			return func() {
				time.Sleep(5 * o.Tick)
				require.Equal(t, "precious", string(must(os.ReadFile(o.SocketPath))))
				require.NoError(t, os.Remove(o.SocketPath)) // the remedy in the log
			}
		},
		"run folder removed": func(t *testing.T, o Options) func() {
			removeFolder(t, o.RunDir)
			return nil
		},
		"run folder renamed": func(t *testing.T, o Options) func() {
			require.NoError(t, os.Rename(o.RunDir, o.RunDir+".old"))
			return nil
		},
		"file in the run folder's place": func(t *testing.T, o Options) func() {
			putFile(t, o.RunDir)
			return func() {
				time.Sleep(5 * o.Tick)
				require.NoError(t, os.Remove(o.RunDir))
			}
		},
		"lock removed": func(t *testing.T, o Options) func() {
			require.NoError(t, os.Remove(Locks(o.SocketPath, o.StateDir)[0]))
			return nil
		},
		"link in the lock's place": func(t *testing.T, o Options) func() {
			path := Locks(o.SocketPath, o.StateDir)[0]
			put(t, path, func(path string) error { return os.Symlink("/etc/passwd", path) })
			return func() {
				time.Sleep(5 * o.Tick)
				require.NoError(t, os.Remove(path))
			}
		},
		"state removed": func(t *testing.T, o Options) func() {
			require.NoError(t, os.Remove(filepath.Join(o.StateDir, desired.FileName)))
			return nil
		},
		"state cut": func(t *testing.T, o Options) func() {
			require.NoError(t, os.Truncate(filepath.Join(o.StateDir, desired.FileName), 100))
			return nil
		},
		"another state in its place": func(t *testing.T, o Options) func() {
			path := filepath.Join(o.StateDir, desired.FileName)
			put(t, path, func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) })
			return nil
		},
		"link in the state's place": func(t *testing.T, o Options) func() {
			path := filepath.Join(o.StateDir, desired.FileName)
			require.NoError(t, os.Link(path, o.StateDir+".old"))
			put(t, path, func(path string) error { return os.Symlink(o.StateDir+".old", path) })
			return nil
		},
		"state folder removed": func(t *testing.T, o Options) func() {
			removeFolder(t, o.StateDir)
			return nil
		},
		"state folder renamed": func(t *testing.T, o Options) func() {
			require.NoError(t, os.Rename(o.StateDir, o.StateDir+".old"))
			return nil
		},
		"file in the state folder's place": func(t *testing.T, o Options) func() {
			putFile(t, o.StateDir)
			return func() {
				time.Sleep(5 * o.Tick)
				require.NoError(t, os.Remove(o.StateDir))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &enforcetest.Kernel{}
			h := withLimits(t, testOptions(t, fake), fake)
			before := inForce(t, fake)
			if undo := fault(t, h.opts); undo != nil {
				h.mustSet(root, "user:4250", up(7e6)) // limits can be set during the fault, too
				_, err := h.remove(root, "user:4250")
				require.NoError(t, err)
				undo()
			}
			h.reached()
			h.written()
			h.alone()
			require.Equal(t, before, inForce(t, fake))
			h.mustSet(root, "user:4245", up(7e6))
			_, err := h.remove(root, "user:4245")
			require.NoError(t, err)
			require.NoError(t, h.stop())
			h = start(t, fake, h.opts)
			require.Equal(t, before, inForce(t, fake))
			require.NoError(t, h.Down(context.Background(), root))
			require.NoError(t, h.wait())
			require.True(t, fake.IsDown())
			require.NoDirExists(t, h.opts.RunDir)
			require.NoDirExists(t, h.opts.StateDir)
		})
	}
}

func TestFaultsBetweenDaemons(t *testing.T) {
	state := func(o Options) string { return filepath.Join(o.StateDir, desired.FileName) }
	for name, c := range map[string]struct {
		fault   func(t *testing.T, o Options)
		remedy  string // in the refusal's hint; "" = the next daemon starts
		problem string // in the status of the next daemon
		asRoot  bool
	}{
		"nothing": {fault: func(*testing.T, Options) {}},
		"socket left behind": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.MkdirAll(o.RunDir, 0o755))
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.SocketPath, Net: "unix"})
			require.NoError(t, err)
			l.SetUnlinkOnClose(false)
			l.Close()
		}},
		"link in the socket's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.MkdirAll(o.RunDir, 0o755))
			require.NoError(t, os.Symlink("/dev/null", o.SocketPath))
		}, remedy: "sudo mv "},
		"run folder removed": {fault: func(t *testing.T, o Options) { require.NoError(t, os.RemoveAll(o.RunDir)) }},
		"file in the run folder's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.RemoveAll(o.RunDir))
			require.NoError(t, os.WriteFile(o.RunDir, nil, 0o600))
		}, remedy: "sudo mv "},
		"lock that others may write": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.MkdirAll(o.RunDir, 0o755))
			require.NoError(t, os.WriteFile(Locks(o.SocketPath, o.StateDir)[0], []byte("1\n"), 0o600))
			require.NoError(t, os.Chmod(Locks(o.SocketPath, o.StateDir)[0], 0o666))
		}},
		"link in the lock's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.MkdirAll(o.RunDir, 0o755))
			require.NoError(t, os.Symlink("/etc/passwd", Locks(o.SocketPath, o.StateDir)[0]))
		}, remedy: "sudo mv "},
		"folder in the lock's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.MkdirAll(Locks(o.SocketPath, o.StateDir)[0], 0o755))
		}, remedy: "sudo mv "},
		"state removed": {fault: func(t *testing.T, o Options) { require.NoError(t, os.Remove(state(o))) }},
		"state that others may write": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Chmod(state(o), 0o666))
		}, remedy: "sudo chmod 600 "},
		"state that a group may write": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Chmod(state(o), 0o620))
		}, remedy: "sudo chmod 600 "},
		"state of another user": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Chown(state(o), 4242, 4242))
		}, remedy: "sudo chown root:root ", asRoot: true},
		"link in the state's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Rename(state(o), state(o)+".old"))
			require.NoError(t, os.Symlink(state(o)+".old", state(o)))
		}, remedy: "readlink -f "},
		"link that leads nowhere": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Remove(state(o)))
			require.NoError(t, os.Symlink("/nowhere", state(o)))
		}, remedy: "readlink -f "},
		"folder in the state's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Remove(state(o)))
			require.NoError(t, os.Mkdir(state(o), 0o700))
		}, remedy: "sudo mv "},
		"fifo in the state's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Remove(state(o)))
			require.NoError(t, unix.Mkfifo(state(o), 0o600))
		}, remedy: "sudo mv "},
		"state empty": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Truncate(state(o), 0))
		}, problem: desired.FileName + statefile.DamagedSuffix},
		"state is garbage": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.WriteFile(state(o), []byte("{"), 0o600))
		}, problem: desired.FileName + statefile.DamagedSuffix},
		"shares of the processors are garbage": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.WriteFile(filepath.Join(o.StateDir, cpushare.FileName), []byte(`{"version":1,`), 0o600))
		}, problem: cpushare.FileName + statefile.DamagedSuffix},
		"paths are garbage": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.WriteFile(filepath.Join(o.StateDir, adaptation.FileName), []byte(`{"version":3,"adapted":[{"ho`), 0o600))
		}, problem: adaptation.FileName + statefile.DamagedSuffix},
		"shares that others may write": {fault: func(t *testing.T, o Options) {
			path := filepath.Join(o.StateDir, cpushare.FileName)
			require.NoError(t, os.WriteFile(path, []byte(`{"version":1,"boot_id":"x","powers":null}`), 0o600))
			require.NoError(t, os.Chmod(path, 0o666))
		}, remedy: "sudo chmod 600 "},
		"state folder removed": {fault: func(t *testing.T, o Options) { require.NoError(t, os.RemoveAll(o.StateDir)) }},
		"state folder that others may write": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Chmod(o.StateDir, 0o777))
		}, remedy: "sudo chmod 755 "},
		"state folder of another user": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Chown(o.StateDir, 4242, 4242))
		}, remedy: "sudo chown root:root ", asRoot: true},
		"state folder elsewhere": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.Rename(o.StateDir, o.StateDir+".real"))
			require.NoError(t, os.Symlink(o.StateDir+".real", o.StateDir))
		}},
		"file in the state folder's place": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.RemoveAll(o.StateDir))
			require.NoError(t, os.WriteFile(o.StateDir, nil, 0o600))
		}, remedy: "sudo mv "},
		"state folder leads nowhere": {fault: func(t *testing.T, o Options) {
			require.NoError(t, os.RemoveAll(o.StateDir))
			require.NoError(t, os.Symlink("/nowhere", o.StateDir))
		}, remedy: "sudo mv "},
	} {
		t.Run(name, func(t *testing.T) {
			if c.asRoot && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			fake := &enforcetest.Kernel{}
			opts := testOptions(t, fake)
			h := withLimits(t, opts, fake)
			before := inForce(t, fake)
			require.NoError(t, h.stop())
			c.fault(t, opts)
			if c.remedy != "" {
				opened := fake.IsOpen()
				e := testutil.RequireFault(t, api.CodeInternal, Run(context.Background(), opts))
				require.Contains(t, e.Hint, c.remedy)
				require.Equal(t, before, inForce(t, fake))
				require.Equal(t, opened, fake.IsOpen(), "the kernel side is closed")
				return
			}
			h = start(t, fake, opts)
			require.Equal(t, before, inForce(t, fake))
			status, err := h.Status(context.Background())
			require.NoError(t, err)
			if c.problem == "" {
				require.Empty(t, status.Problems)
			} else {
				require.Len(t, status.Problems, 1)
				require.Contains(t, status.Problems[0].Message, c.problem)
				require.Contains(t, status.Problems[0].Hint, "sudo rm ")
			}
			h.mustSet(root, "user:4242", up(9e6))
			_, err = h.remove(root, "host")
			require.NoError(t, err)
			now := inForce(t, fake)
			require.Len(t, now, 3)
			h.written()
			require.NoError(t, h.stop())
			start(t, fake, opts)
			require.Equal(t, now, inForce(t, fake))
		})
	}
}
