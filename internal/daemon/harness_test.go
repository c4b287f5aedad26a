package daemon

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soon = testutil.Soon
	poll = testutil.Poll
)

var root = auth.Actor{UID: 0}

// harness is a daemon with a kernel that enforces nothing.
type harness struct {
	*Daemon
	t      testing.TB
	fake   *enforcetest.Kernel
	opts   Options
	cancel context.CancelFunc
	done   chan error
}

// noSystemd is a machine without systemd.
type noSystemd struct{ identity.SystemBus }

func (noSystemd) Running() bool { return false }

func testOptions(t testing.TB, fake *enforcetest.Kernel) Options {
	dir, err := os.MkdirTemp("", "nn") // a short path, because it holds a socket
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cgroups := filepath.Join(dir, "cgroup")
	require.NoError(t, os.Mkdir(cgroups, 0o755))
	return Options{
		SocketPath: filepath.Join(dir, "run", "netnice.sock"),
		RunDir:     filepath.Join(dir, "run"),
		StateDir:   filepath.Join(dir, "state"),
		Logger:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		Release:    "test",
		OpenKernel: fake.Open,
		Identity:   identity.Options{CgroupRoot: cgroups, Systemd: noSystemd{}},
		Tick:       20 * time.Millisecond,
		IdleAfter:  100 * time.Millisecond,
		FirstWait:  300 * time.Millisecond,
	}
}

// start runs a daemon until the test ends or stop is called.
func start(t testing.TB, fake *enforcetest.Kernel, opts Options) *harness {
	t.Helper()
	h := &harness{t: t, fake: fake, opts: opts, done: make(chan error, 1)}
	ready := make(chan *Daemon, 1)
	opts.opened = func(d *Daemon) {
		d.mu.Lock()
		d.unpublished.check = func() { checkPublished(t, d) }
		d.mu.Unlock()
		ready <- d
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	go func() { h.done <- Run(ctx, opts) }()
	t.Cleanup(func() { _ = h.stop() })
	select {
	case h.Daemon = <-ready:
	case err := <-h.done:
		h.done <- err
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "the daemon did not start")
	}
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", opts.SocketPath)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, soon, poll)
	return h
}

// checkPublished checks that each change was noted: readers see the nodes as they are, and the table finds them. The caller holds d.mu. Tests with
// very many nodes do not wait for it.
func checkPublished(t testing.TB, d *Daemon) {
	const most = 500
	now := d.observe.Snapshot()
	if d.nodes.Len() > most {
		return
	}
	if d.nodes.Len() != now.Count() {
		t.Errorf("%d nodes, %d published", d.nodes.Len(), now.Count())
	}
	for n := range d.nodes.All() {
		if want := n.record(); !reflect.DeepEqual(want, now.Node(n.id)) {
			t.Errorf("node %d of %s is %+v, published %+v", n.id, n.res.Subject, want, now.Node(n.id))
		}
		if want := n.Keys(); want != d.nodes.Indexed(n.id) {
			t.Errorf("node %d has the keys %+v, and is indexed by %+v", n.id, want, d.nodes.Indexed(n.id))
		}
	}
	if want := d.sharedRecord(); !reflect.DeepEqual(want, now.Shared()) {
		t.Errorf("nodes share %+v, published %+v", want, now.Shared())
	}
}

// stop ends the daemon as a signal would and returns what Run returned.
func (h *harness) stop() error {
	h.cancel()
	return h.wait()
}

// wait returns what Run returned.
func (h *harness) wait() error {
	select {
	case err := <-h.done:
		h.done <- err
		return err
	case <-time.After(2 * soon):
		h.t.Error("the daemon did not end")
		return nil
	}
}

func (h *harness) set(by auth.Actor, subject string, w api.Wish) (api.SetResponse, error) {
	h.t.Helper()
	s, err := api.ParseSubject(subject)
	require.NoError(h.t, err)
	return h.Set(context.Background(), by, api.SetRequest{Subject: s, Wish: w})
}

// mustSet sets a requested limit and returns the node.
func (h *harness) mustSet(by auth.Actor, subject string, w api.Wish) api.Node {
	h.t.Helper()
	answer, err := h.set(by, subject, w)
	require.NoError(h.t, err)
	require.NotNil(h.t, answer.Node)
	return *answer.Node
}

func (h *harness) remove(by auth.Actor, subject string) (api.SetResponse, error) {
	h.t.Helper()
	s, err := api.ParseSubject(subject)
	require.NoError(h.t, err)
	return h.Remove(context.Background(), by, s, false)
}

func (h *harness) nodesFor(subject string) ([]api.Node, error) {
	h.t.Helper()
	s, err := api.ParseSubject(subject)
	require.NoError(h.t, err)
	list, err := h.NodesFor(context.Background(), root, s)
	return list.Nodes, err
}

// settle waits for a change that is under way. The kernel has it before readers do, and tests look at both.
func (h *harness) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
}

// Nodes is the daemon's, after settle.
func (h *harness) Nodes(ctx context.Context, by auth.Actor) (api.NodeList, error) {
	h.settle()
	return h.Daemon.Nodes(ctx, by)
}

// NodesFor is the daemon's, after settle.
func (h *harness) NodesFor(ctx context.Context, by auth.Actor, s api.Subject) (api.NodeList, error) {
	h.settle()
	return h.Daemon.NodesFor(ctx, by, s)
}

func (h *harness) eventually(what string, condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, condition, soon, poll, what)
}

// ask sends a program's request by a socket option, and returns the answer.
func (h *harness) ask(r enforce.Request) (a enforce.Answer) {
	h.t.Helper()
	h.fake.Request(r)
	h.eventually("an answer", func() (ok bool) {
		a, ok = h.fake.Answered(r.Number)
		return ok
	})
	return a
}

func (h *harness) gone(id uint32) func() bool {
	return func() bool { _, ok := h.fake.Spec(id); return !ok }
}

// sleeper starts a process that sleeps and ends with the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	return cmd
}

// sleeperAs is sleeper for a process of another user.
func sleeperAs(t *testing.T, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	return cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// end ends the process of a limit, and waits until the daemon knows of it.
func (h *harness) end(cmd *exec.Cmd, node uint32) {
	h.t.Helper()
	end(cmd)
	h.eventually("the process has ended", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.subjectGone(h.nodes.Get(node))
	})
}

func pidSubject(cmd *exec.Cmd) string { return "pid:" + strconv.Itoa(cmd.Process.Pid) }

func up(rate uint64) api.Wish { return api.Wish{UpBytesPerSec: &rate} }

func ptr[T any](v T) *T { return &v }

func adminUp(spec enforce.NodeSpec) uint64 {
	return spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec
}
