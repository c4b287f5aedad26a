package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// stage is the environment in which a test runs netnice: a mount namespace without files of netnice.
type stage struct {
	t          *testing.T
	begun      testbed.Instant
	mounts     *os.File
	daemonGone bool     // netnice has no daemon to ask any more
	preload    bool     // daemons load all programs at their start
	env        []string // environment of commands; nil = that of the tests
	config     string   // folder of rules; "" = none
	admins     string   // the administrators' group; "" = the usual
	root       string   // cgroup that netnice and scripts are in; "" = the root
	program    string   // the program; "" = the one that is tested

	remeasured int             // windows that the machine disturbed, and that were measured again
	disturbed  testbed.Instant // end of the last disturbance
	account    *account        // nil: nothing counts what leaves

	mu      sync.Mutex
	daemons []*daemon
}

// private holds the folders that are empty on every stage.
var private = []string{"/run", "/var/lib", "/var/log"}

// newStage makes a stage without a daemon. At the end of the test it lifts all limits that netnice left on the
// stage.
func newStage(t *testing.T) *stage {
	t.Helper()
	testutil.RequireRoot(t)
	s := &stage{t: t, begun: testbed.Now()}
	t.Cleanup(machineShared(t))
	err := onThrowawayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		for _, dir := range private {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
				return fmt.Errorf("mount on %s: %w", dir, err)
			}
		}
		// netnice mounts the file system again.
		if err := unix.Unmount("/sys/fs/bpf", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount the BPF file system: %w", err)
		}
		var err error
		s.mounts, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if err != nil {
		t.Fatalf("make a stage: %v", err)
	}
	t.Cleanup(s.tearDown)
	return s
}

// upStage makes a stage with a running daemon.
func upStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.daemon()
	return s
}

// tearDown lifts all limits on the stage and ends its daemons. If the test failed, it first writes down what explains
// that. Cgroups, scripts and namespaces have cleanups of their own.
func (s *stage) tearDown() {
	if s.account == nil {
		s.t.Log("account: not compared: nothing counts what leaves")
	}
	failed := s.t.Failed()
	if failed {
		s.explainFailure()
	}
	if !s.daemonGone {
		if r := s.netnice("down"); r.code != 0 {
			s.t.Errorf("netnice down at the end: %v", r)
		}
	}
	for _, d := range s.daemons {
		d.kill()
	}
	if s.t.Failed() && !failed {
		s.daemonGone = true // no daemon is left to ask
		s.explainFailure()
	}
	_ = s.mounts.Close() // read only: nothing to flush
}

// onThrowawayThread calls fn on a thread that ends with it, so fn may change the thread's namespaces.
func onThrowawayThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- fn()
	}()
	return <-done
}

// start starts a command on the stage, in a network namespace (nil: the machine's own).
func (s *stage) start(cmd *exec.Cmd, in *testbed.NetNS) error {
	return onThrowawayThread(func() error {
		if in != nil {
			net, err := os.Open(in.Path())
			if err != nil {
				return err
			}
			defer net.Close()
			if err := unix.Setns(int(net.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the network namespace: %w", err)
			}
		}
		if err := s.enter(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

func (s *stage) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(s.mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the stage: %w", err)
	}
	return nil
}

// do calls fn on a thread on the stage, where fn sees the stage's files.
func (s *stage) do(fn func() error) {
	s.t.Helper()
	err := onThrowawayThread(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		return fn()
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// result holds the outcome of a command.
type result struct {
	args     []string
	code     int
	out, err string
	at       testbed.Instant // when it returned
}

func (r result) String() string {
	return fmt.Sprintf("netnice %q: exit code %d\n%s%s", r.args, r.code, r.out, r.err)
}

// netnice runs netnice with these arguments. On an emulated processor (timeoutScale) it does so again, up to nine times,
// while no daemon answers.
func (s *stage) netnice(args ...string) result {
	s.t.Helper()
	for try := time.Duration(1); ; try++ {
		r := s.run(s.command(args...), nil)
		if r.code == 0 {
			s.account.commanded(args)
		}
		if r.code == 0 || try >= timeoutScale || !strings.Contains(r.err, "did not answer") {
			return r
		}
	}
}

// command prepares netnice with these arguments.
func (s *stage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(s.program, netniceBinary), args...)
	cmd.Env = s.env
	return cmd
}

// run runs a command to its end, with a bound.
func (s *stage) run(cmd *exec.Cmd, in *testbed.NetNS) result {
	s.t.Helper()
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	cmd.WaitDelay = time.Second
	if s.account != nil && in == s.account.f.A {
		s.account.giveUp("the test has run a command in the namespace, which may have sent")
	}
	if err := s.start(cmd, in); err != nil {
		s.t.Fatalf("start %q: %v", cmd.Args, err)
	}
	timer := time.AfterFunc(timeoutScale*30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	r := result{args: cmd.Args[1:], out: out.String(), err: problem.String(), at: testbed.Now()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
		if status, ok := exit.Sys().(interface{ Signaled() bool }); ok && status.Signaled() {
			r.code = -1
		}
	case err != nil:
		s.t.Fatalf("run %q: %v", cmd.Args, err)
	}
	return r
}

// must runs netnice, which has to succeed, and returns the instant of its end. A command that no daemon answered in time
// while the machine was disturbed is run again, twice at most.
func (s *stage) must(args ...string) testbed.Instant {
	s.t.Helper()
	for try := 1; ; try++ {
		begin := testbed.Now()
		r := s.netnice(args...)
		switch {
		case r.code == 0:
			return r.at
		// A daemon that starts loads programs, which takes a while if others load theirs.
		case try < 3 && strings.Contains(r.err, "did not answer within") && cpus.excuse(begin, r.at) != "":
			s.t.Logf("once more: %v", r)
		default:
			s.t.Fatal(r)
		}
	}
}

// nodes returns the nodes that `netnice ls` shows, by subject.
func (s *stage) nodes() map[string]api.Node {
	s.t.Helper()
	nodes := make(map[string]api.Node)
	for _, n := range s.list().Nodes {
		nodes[n.Subject.String()] = n
	}
	return nodes
}

// charged returns the bytes per second that a subject is charged, in IP bytes, over a span from now, by netnice's
// own count.
func (s *stage) charged(subject string, over time.Duration) float64 {
	s.t.Helper()
	before, from := s.counted(subject)
	time.Sleep(over)
	after, to := s.counted(subject)
	if from.IsZero() || to.IsZero() {
		s.t.Fatalf("%s is not in %+v", subject, s.list().Nodes)
	}
	return float64(after-before) / to.Sub(from).Seconds()
}

// counted returns the bytes that a subject was charged for egress, and the time. It returns zeros if there is no
// such subject.
func (s *stage) counted(subject string) (bytes uint64, at time.Time) {
	s.t.Helper()
	n, at := s.listed(subject)
	return n.Up.Bytes, at
}

// listed returns a subject's figures, and their time, which is zero if the subject does not exist.
func (s *stage) listed(subject string) (n api.Node, at time.Time) {
	s.t.Helper()
	for try := 1; ; try++ {
		begin := time.Now()
		list := s.list()
		if time.Since(begin) > 50*time.Millisecond && try < 5 {
			continue // the call had to wait, so the time of the figures is unknown
		}
		for _, n := range list.Nodes {
			if n.Subject.String() == subject {
				return n, list.Time
			}
		}
		return api.Node{}, time.Time{}
	}
}

func (s *stage) list() api.NodeList {
	s.t.Helper()
	r := s.netnice("ls", "--json")
	if r.code != 0 {
		s.t.Fatal(r)
	}
	var list api.NodeList
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		s.t.Fatalf("netnice ls --json: %v\n%s", err, r.out)
	}
	return list
}

// status returns the output of `netnice status`.
func (s *stage) status() api.Status {
	s.t.Helper()
	var st api.Status
	r := s.netnice("status", "--json")
	if r.code != 0 {
		s.t.Fatal(r)
	}
	if err := json.Unmarshal([]byte(r.out), &st); err != nil {
		s.t.Fatalf("netnice status --json: %v\n%s", err, r.out)
	}
	return st
}

// eventually calls f every 20 ms until it is true, and says whether that was within timeoutScale times the limit.
func eventually(limit time.Duration, f func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeoutScale*limit)
	defer cancel()
	for {
		if f() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// assertWithin waits until f is true, and reports an error if that takes longer than a limit although the machine has time.
// It says whether f became true at all.
func (s *stage) assertWithin(what string, limit time.Duration, f func() bool) bool {
	s.t.Helper()
	begin := testbed.Now()
	ok := eventually(5*limit, f)
	now := testbed.Now()
	s.t.Logf("%s: %t after %v", what, ok, now.Sub(begin).Round(time.Millisecond))
	if !ok {
		s.t.Errorf("%s: not after %v, want within %v", what, now.Sub(begin), limit)
		return false
	}
	s.notSlower(what, begin, now.Sub(begin), limit)
	return true
}

// notSlower checks a time that was measured from an instant to now. A disturbance of the machine excuses it.
func (s *stage) notSlower(what string, since testbed.Instant, took, most time.Duration) {
	s.t.Helper()
	switch excuse := cpus.excuse(since, testbed.Now()); {
	case took <= most:
	case excuse == "":
		s.t.Errorf("%s: %v, want at most %v", what, took, most)
	default:
		s.t.Logf("not judged: %s: %v, want at most %v, but %s", what, took, most, excuse)
	}
}

// cgroup makes a cgroup for the time of the test and returns its folder, and its name as netnice shows it.
func cgroup(t *testing.T, name string) (dir, path string) {
	t.Helper()
	testutil.RequireRoot(t)
	root := cgroupMount()
	path = fmt.Sprintf("/%s%d-%s", testutil.RunName(), cgroups.Add(1), name)
	dir = filepath.Join(root, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if !eventually(3*time.Second, func() bool { return os.Remove(dir) == nil || errors.Is(os.Remove(dir), os.ErrNotExist) }) {
			t.Errorf("the cgroup %s cannot be removed", dir)
		}
	})
	return dir, path
}

// stageInOwnCgroup makes a stage whose netnice sees one cgroup, which contains the scripts. No other netnice on the
// machine then handles their socket options first.
func stageInOwnCgroup(t *testing.T) *stage {
	t.Helper()
	dir, _ := cgroup(t, "root")
	s := newStage(t)
	s.root = dir
	return s
}

var cgroups atomic.Int64 // number of cgroups made

// cgroupMount returns the mount point of cgroup v2.
func cgroupMount() string {
	const hybrid = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(hybrid + "/cgroup.procs"); err == nil {
		return hybrid
	}
	return "/sys/fs/cgroup"
}

func itoa[T int | int32 | uint32 | uint16](n T) string { return strconv.FormatInt(int64(n), 10) }
