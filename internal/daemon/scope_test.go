package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
)

// scopeOptions use the machine's cgroup tree, in a folder of the test's own.
func scopeOptions(t *testing.T, fake *enforcetest.Kernel) (opts Options, folder string) {
	testutil.RequireRoot(t)
	opts = testOptions(t, fake)
	opts.Identity.CgroupRoot = ""
	resolver, err := identity.New(opts.Identity)
	require.NoError(t, err)
	mount, err := resolver.CgroupRoot()
	require.NoError(t, err)
	opts.ScopeFolder = fmt.Sprintf("netnice-test-%d", os.Getpid())
	folder = filepath.Join(mount, opts.ScopeFolder)
	t.Cleanup(func() { _ = os.Remove(folder) })
	return opts, folder
}

func (h *harness) scope(by auth.Actor, subject string, dryRun bool) (api.SetResponse, error) {
	s, err := api.ParseSubject(subject)
	require.NoError(h.t, err)
	return h.Set(context.Background(), by, api.SetRequest{Subject: s, Wish: up(1e6), Scope: true, DryRun: dryRun})
}

func TestScope(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts, folder := scopeOptions(t, fake)
	h := start(t, fake, opts)
	proc := sleeper(t)
	origin, err := h.resolver.ProcessCgroup(proc.Process.Pid)
	require.NoError(t, err)

	_, err = h.scope(root, pidSubject(proc), true)
	require.NoError(t, err)
	require.NoDirExists(t, folder, "a dry run moves nothing")

	answer, err := h.scope(root, pidSubject(proc), false)
	require.NoError(t, err)
	node := *answer.Node
	require.Equal(t, api.KindCgroup, node.Subject.Kind)
	require.Equal(t, "sleep", node.Name)
	require.Equal(t, proc.Process.Pid, node.PID)
	spec, _ := fake.Spec(node.ID)
	require.Equal(t, enforce.KindCgroup, spec.Kind)
	now, err := h.resolver.ProcessCgroup(proc.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, node.Subject.ID, now)

	again, err := h.scope(root, pidSubject(proc), false)
	require.NoError(t, err)
	require.Equal(t, node.ID, again.Node.ID, "it has a scope already")
	holding, err := h.nodesFor(pidSubject(proc))
	require.NoError(t, err)
	require.Equal(t, node.ID, holding[0].ID)

	_, err = h.remove(root, pidSubject(proc))
	require.NoError(t, err, "by the process's name too")
	require.True(t, h.gone(node.ID)())
	now, err = h.resolver.ProcessCgroup(proc.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, origin, now, "the process is back where it was")
	require.NoDirExists(t, folder)
}

func TestScopeEndsWithItsProcesses(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts, folder := scopeOptions(t, fake)
	h := start(t, fake, opts)
	proc := sleeper(t)
	answer, err := h.scope(root, pidSubject(proc), false)
	require.NoError(t, err)
	_ = h.stop()
	h = start(t, fake, opts)
	require.Equal(t, 1, h.count())
	end(proc)
	h.eventually("the node goes", h.gone(answer.Node.ID))
	h.eventually("the folder goes", func() bool { _, err := os.Stat(folder); return os.IsNotExist(err) })
}

func TestScopeLeftByADeadDaemon(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts, folder := scopeOptions(t, fake)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "run-12345"), 0o755))
	start(t, fake, opts)
	require.NoDirExists(t, folder)
}

func TestScopeForUsers(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts, folder := scopeOptions(t, fake)
	h := start(t, fake, opts)
	_, err := h.scope(auth.Actor{UID: 4242}, pidSubject(sleeper(t)), false)
	testutil.RequireCode(t, api.CodeDenied, err)
	_, err = h.scope(root, "host", false)
	testutil.RequireCode(t, api.CodeBadRequest, err)
	require.NoDirExists(t, folder)
}

// A user's process stays where the administrator's limit is on a cgroup within the user's own slice.
func TestUserLeavesNoLimit(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	const slice, service = "/user.slice/user-4242.slice", "/user.slice/user-4242.slice/user@4242.service"
	for _, folder := range []string{service + "/app.slice", slice + "/session-1.scope"} {
		require.NoError(t, os.MkdirAll(filepath.Join(opts.Identity.CgroupRoot, folder), 0o755))
	}
	h := start(t, fake, opts)
	user := auth.Actor{UID: 4242}
	left := func(by auth.Actor, origin, slice string) string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.leftByUser(by, origin, slice)
	}
	h.mustSet(root, "cgroup:"+slice, up(1e6))
	require.Empty(t, left(user, service+"/app.slice", "user-4242.slice"), "that one holds in the scope, too")
	h.mustSet(root, "cgroup:"+service, up(1e6))
	require.Equal(t, service, left(user, service+"/app.slice", "user-4242.slice"))
	require.Equal(t, service, left(user, service, "user-4242.slice"))
	require.Empty(t, left(user, slice+"/session-1.scope", "user-4242.slice"), "beside it")
	require.Empty(t, left(root, service, "user-4242.slice"))
	require.Equal(t, "/system.slice/web.service", left(user, "/system.slice/web.service", "system.slice"))
	require.Equal(t, service, left(auth.Actor{UID: 4243}, service, "user-4242.slice"), "another's")
}

// fakeSystemd moves no process. It passes each request on to the test.
type fakeSystemd struct {
	identity.SystemBus
	asked chan [2]string
}

func (fakeSystemd) Running() bool { return true }

func (f fakeSystemd) StartScope(_ context.Context, name, slice string, _ []int, _ ...sdbus.Property) error {
	f.asked <- [2]string{name, slice}
	return unix.EIO
}

func TestScopeBySystemd(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	systemd := fakeSystemd{asked: make(chan [2]string, 1)}
	opts.Identity.Systemd = systemd
	h := start(t, fake, opts)
	proc := sleeper(t)
	_, err := h.scope(root, pidSubject(proc), false)
	require.ErrorIs(t, err, unix.EIO)
	require.Equal(t, fmt.Sprintf("run-netnice-%d.scope", proc.Process.Pid), (<-systemd.asked)[0])
	require.Zero(t, fake.Calls("SetNode"))
}
