package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// fakeSystemd knows units and their cgroups.
type fakeSystemd struct {
	units map[string]string
	err   error
}

func (f fakeSystemd) Running() bool { return f.units != nil }

func (f fakeSystemd) ControlGroup(_ context.Context, unit string) (string, error) {
	if path, ok := f.units[unit]; ok {
		return path, f.err
	}
	return "", ErrNotFound
}

func (f fakeSystemd) StartScope(context.Context, string, string, []int, ...sdbus.Property) error {
	return errors.ErrUnsupported
}

func (f fakeSystemd) SetProperties(context.Context, string, ...sdbus.Property) error {
	return errors.ErrUnsupported
}

func newResolver(t testing.TB, opts Options) *Resolver {
	t.Helper()
	if opts.Systemd == nil {
		opts.Systemd = fakeSystemd{}
	}
	r, err := New(opts)
	require.NoError(t, err)
	return r
}

func resolve(t *testing.T, r *Resolver, subject string) (Resolved, error) {
	t.Helper()
	s, err := api.ParseSubject(subject)
	require.NoError(t, err)
	return r.Resolve(t.Context(), s)
}

func requireCode(t *testing.T, code string, err error) {
	t.Helper()
	var e *api.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.NotEmpty(t, e.Hint)
}

func TestProcess(t *testing.T) {
	r := newResolver(t, Options{})
	res, err := resolve(t, r, fmt.Sprint("pid:", os.Getpid()))
	require.NoError(t, err)
	require.Equal(t, enforce.KindTree, res.Kind)
	require.EqualValues(t, os.Getpid(), res.Key)
	require.Zero(t, res.StartBoottimeNS%TickNS)
	require.NotEmpty(t, res.Name)

	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
	age := time.Duration(now.Nano() - int64(res.StartBoottimeNS))
	require.Positive(t, age)
	require.Less(t, age, time.Hour, "the start is in boot time")
}

func TestProcessStartIsRoundedDown(t *testing.T) {
	r := newResolver(t, Options{})
	var before, after unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &before))
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &after))
	res, err := resolve(t, r, fmt.Sprint("pid:", cmd.Process.Pid))
	require.NoError(t, err)
	require.GreaterOrEqual(t, res.StartBoottimeNS+TickNS, uint64(before.Nano()))
	require.LessOrEqual(t, res.StartBoottimeNS, uint64(after.Nano()))
	require.True(t, r.Alive(cmd.Process.Pid, res.StartBoottimeNS))
	require.True(t, r.Alive(cmd.Process.Pid, res.StartBoottimeNS+TickNS-1), "the exact start matches too")
	require.False(t, r.Alive(cmd.Process.Pid, res.StartBoottimeNS+TickNS))

	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool { return !r.Alive(cmd.Process.Pid, res.StartBoottimeNS) },
		5*time.Second, time.Millisecond, "a zombie does not live")
	_, err = resolve(t, r, fmt.Sprint("pid:", cmd.Process.Pid))
	requireCode(t, api.CodeNotFound, err)
	require.True(t, IsNotFound(err))
	_ = cmd.Wait()
	_, err = resolve(t, r, fmt.Sprint("pid:", cmd.Process.Pid))
	requireCode(t, api.CodeNotFound, err)
}

func TestThreadIsItsProcess(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tids := make(chan int)
	stop := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		tids <- unix.Gettid()
		<-stop
	}()
	defer close(stop)
	tid := <-tids
	require.NotEqual(t, tid, unix.Gettid())
	res, err := resolve(t, newResolver(t, Options{}), fmt.Sprint("pid:", tid))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("pid:", os.Getpid()), res.Subject.String())
}

func TestInitIsTheHost(t *testing.T) {
	res, err := resolve(t, newResolver(t, Options{}), "pid:1")
	require.NoError(t, err)
	require.Equal(t, Host(), res)
}

// TestKernelThread uses a made-up procfs: a sandbox may show no kernel threads.
func TestKernelThread(t *testing.T) {
	proc := t.TempDir()
	dir := filepath.Join(proc, "2")
	require.NoError(t, os.Mkdir(dir, 0o755))
	stat := "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
	status := "Name:\tkthreadd\nTgid:\t2\nPid:\t2\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o644))
	_, err := resolve(t, newResolver(t, Options{Proc: proc}), "pid:2")
	requireCode(t, api.CodeBadRequest, err)
	require.ErrorContains(t, err, "thread of the kernel")
}

func TestBadPIDs(t *testing.T) {
	r := newResolver(t, Options{})
	for _, id := range []string{"x", "-1", "0", "1.5", "99999999999999999999", "../1"} {
		_, err := r.Resolve(t.Context(), api.Subject{Kind: api.KindPID, ID: id})
		requireCode(t, api.CodeBadRequest, err)
	}
	_, err := resolve(t, r, "pid:4194305") // above the kernel's highest pid
	requireCode(t, api.CodeNotFound, err)
}

func TestUsers(t *testing.T) {
	r := newResolver(t, Options{})
	byName, err := resolve(t, r, "user:root")
	require.NoError(t, err)
	require.Equal(t, enforce.KindUser, byName.Kind)
	require.Zero(t, byName.Key)
	byUID, err := resolve(t, r, "user:0")
	require.NoError(t, err)
	require.Equal(t, byName, byUID)

	const nameless = "3123456789"
	if _, err := user.LookupId(nameless); err == nil {
		t.Fatalf("the uid %s has a name here", nameless)
	}
	res, err := resolve(t, r, "user:"+nameless)
	require.NoError(t, err)
	require.EqualValues(t, 3123456789, res.Key)
	require.Equal(t, nameless, res.Subject.ID)

	for _, id := range []string{"no-such-user-here", "4294967295", "4294967296", "-1"} {
		_, err := resolve(t, r, "user:"+id)
		requireCode(t, api.CodeNotFound, err)
	}
}

func TestCgroups(t *testing.T) {
	mount := t.TempDir()
	dir := filepath.Join(mount, "a", "b")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(mount, "file"), nil, 0o644))
	r := newResolver(t, Options{CgroupRoot: mount})
	id, err := CgroupID(dir)
	require.NoError(t, err)
	for _, name := range []string{"a/b", "/a/b", "/a/b/", "a/../a/./b", dir, dir + "/"} {
		res, err := resolve(t, r, "cgroup:"+name)
		require.NoError(t, err, name)
		require.Equal(t, Resolved{
			Subject: api.Subject{Kind: api.KindCgroup, ID: "/a/b"},
			Kind:    enforce.KindCgroup, Key: id, Name: "b", Dir: dir,
		}, res)
	}
	_, err = resolve(t, r, "cgroup:/a/c")
	requireCode(t, api.CodeNotFound, err)
	for _, name := range []string{"/", "..", mount, mount + "/../.."} {
		_, err = resolve(t, r, "cgroup:"+name)
		require.Error(t, err, name)
	}
	_, err = resolve(t, r, "cgroup:/../"+filepath.Base(mount))
	requireCode(t, api.CodeNotFound, err)
	_, err = resolve(t, r, "cgroup:/file")
	require.Error(t, err)

	found, err := r.CgroupByID(id)
	require.NoError(t, err)
	require.Equal(t, dir, found)
	found, err = r.CgroupByID(1)
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestCgroupIDIsTheHandle holds on a real cgroup v2: the inode number is what
// the kernel calls the cgroup's id.
func TestCgroupIDIsTheHandle(t *testing.T) {
	r := newResolver(t, Options{})
	mount, err := r.CgroupRoot()
	if err != nil {
		requireCode(t, api.CodeNotSupported, err)
		require.ErrorIs(t, err, enforce.ErrNotSupported)
		t.Skip(err)
	}
	id, err := CgroupID(mount)
	require.NoError(t, err)
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, mount, 0)
	require.NoError(t, err)
	require.Equal(t, strconv.FormatUint(id, 16), fmt.Sprintf("%x", leUint64(handle.Bytes())))
	rel, err := r.ProcessCgroup(os.Getpid())
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(mount, rel))
}

func leUint64(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func TestUnits(t *testing.T) {
	mount := t.TempDir()
	web := filepath.Join(mount, "system.slice", "web.service")
	mine := filepath.Join(mount, "user.slice", "user-1.slice", "mine.service")
	for _, dir := range []string{web, mine, filepath.Join(mount, "x", "twin.service"), filepath.Join(mount, "y", "twin.service")} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	id, err := CgroupID(web)
	require.NoError(t, err)
	for name, systemd := range map[string]fakeSystemd{
		"without systemd": {},
		"with systemd": {units: map[string]string{
			"web.service": "/system.slice/web.service", "idle.service": "", "ending.service": "/gone",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResolver(t, Options{CgroupRoot: mount, Systemd: systemd})
			for _, unit := range []string{"web", "web.service"} {
				res, err := resolve(t, r, "unit:"+unit)
				require.NoError(t, err)
				require.Equal(t, Resolved{
					Subject: api.Subject{Kind: api.KindUnit, ID: "web.service"},
					Kind:    enforce.KindCgroup, Key: id, Name: "web.service", Dir: web,
				}, res)
			}
			res, err := resolve(t, r, "unit:mine")
			require.NoError(t, err, "a unit of a user's own manager")
			require.Equal(t, mine, res.Dir)
			_, err = resolve(t, r, "unit:absent")
			requireCode(t, api.CodeNotFound, err)
			_, err = resolve(t, r, "unit:a/b")
			requireCode(t, api.CodeBadRequest, err)
			_, err = resolve(t, r, "unit:twin")
			requireCode(t, api.CodeConflict, err)
			if !systemd.Running() {
				return
			}
			for _, unit := range []string{"idle", "ending"} {
				res, err = resolve(t, r, "unit:"+unit)
				require.NoError(t, err)
				require.True(t, res.Pending())
			}
			require.False(t, res.Same(Resolved{Kind: enforce.KindCgroup, Key: 0, Subject: api.Subject{Kind: api.KindUnit, ID: "other.service"}}))
		})
	}
	r := newResolver(t, Options{CgroupRoot: mount, Systemd: fakeSystemd{units: map[string]string{"web.service": ""}, err: unix.EIO}})
	_, err = resolve(t, r, "unit:web")
	require.ErrorIs(t, err, unix.EIO)
}

func TestCanonical(t *testing.T) {
	r := newResolver(t, Options{CgroupRoot: "/cg"})
	for in, want := range map[string]string{
		"pid:007": "pid:7", "unit:web": "unit:web.service", "cgroup:a/b/": "cgroup:/a/b", "cgroup:/cg/a": "cgroup:/a", "user:bob": "user:bob",
	} {
		s, err := api.ParseSubject(in)
		require.NoError(t, err)
		require.Equal(t, want, r.Canonical(s).String())
	}
}

func TestAncestorsAndCensus(t *testing.T) {
	r := newResolver(t, Options{})
	list := r.Ancestors(os.Getpid())
	require.GreaterOrEqual(t, len(list), 2)
	require.Equal(t, os.Getpid(), list[0].PID)
	require.Equal(t, os.Getppid(), list[1].PID)
	census, err := r.Census()
	require.NoError(t, err)
	require.GreaterOrEqual(t, census[uint32(os.Getuid())], 1)
}

// A process in between, such as sudo, may have removed a variable from the environment.
func TestInheritedVariable(t *testing.T) {
	r := newResolver(t, Options{})
	cmd := exec.Command("sh", "-c", "env -i NN_OWN=2 sleep 57; true")
	cmd.Env = append(os.Environ(), "NN_AROUND=1", "NN_AROUND_TOO=3")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	inner := 0
	require.Eventually(t, func() bool {
		all, err := r.Processes()
		require.NoError(t, err)
		for _, p := range all {
			_, parent, err := r.IDs(p.PID)
			_, comm, _ := r.Program(p.PID)
			if err == nil && parent == cmd.Process.Pid && comm == "sleep" {
				inner = p.PID
			}
		}
		return inner != 0
	}, 10*time.Second, 10*time.Millisecond)
	t.Cleanup(func() { _ = unix.Kill(inner, unix.SIGKILL) })
	require.Equal(t, "2", r.Variable(inner, "NN_OWN"))
	require.Empty(t, r.Variable(inner, "NN_AROUND"))
	require.Equal(t, "1", r.InheritedVariable(inner, "NN_AROUND"))
	require.Equal(t, "2", r.InheritedVariable(inner, "NN_OWN"))
	require.Empty(t, r.InheritedVariable(inner, "NN_NONE"))
}

func TestBootID(t *testing.T) {
	id, err := newResolver(t, Options{}).BootID()
	require.NoError(t, err)
	require.Len(t, id, 36)
}

func TestFacts(t *testing.T) {
	r := newResolver(t, Options{})
	cmd := exec.Command("sleep", "59")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := cmd.Process.Pid
	path, comm, err := r.Program(pid)
	require.NoError(t, err)
	want, err := filepath.EvalSymlinks(cmd.Path)
	require.NoError(t, err)
	require.Equal(t, want, path)
	require.Equal(t, "sleep", comm)
	uid, parent, err := r.IDs(pid)
	require.NoError(t, err)
	require.EqualValues(t, os.Getuid(), uid)
	require.Equal(t, os.Getpid(), parent)
	// Start returns in the middle of exec, before there are arguments.
	require.Eventually(t, func() bool {
		line, err := r.Command(pid)
		return err == nil && line == "sleep 59"
	}, 5*time.Second, time.Millisecond)
	list, err := r.Processes()
	require.NoError(t, err)
	found := false
	for _, p := range list {
		found = found || p.PID == pid
		require.NotEqual(t, 2, p.PID, "a thread of the kernel")
	}
	require.True(t, found)
	_, _, err = r.IDs(1 << 30)
	require.True(t, IsNotFound(err))
}
