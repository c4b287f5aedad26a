package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

const flooding = `
say("pid", os.getpid())
flood(connect(sys.argv[1]))
`

// lives says whether a process exists and is no zombie: the parent that reads a daemon's exit status may take its
// time.
func lives(pid int) bool {
	text, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// cleared checks that a daemon on demand and all its objects are gone within a limit.
func (s *stage) cleared(daemon int, made, before map[object]bool, limit time.Duration) {
	s.t.Helper()
	if s.assertWithin("the daemon goes", limit, func() bool { return !lives(daemon) }) {
		s.leaves(made, before)
	}
}

// `netnice run` without a daemon starts the parts that it needs, and cleans up after.
func TestRunWithoutDaemon(t *testing.T) {
	t.Parallel()
	f := newField(newStage(t))
	before := ours(t)
	a := f.ports + 1
	x := f.python(options{in: f.A, under: []string{netniceBinary, "run", "--up", "10MB/s", "--"}}, flooding, f.to(a))
	pid := x.read("pid")
	if pid != x.pid() {
		t.Errorf("the command runs as process %s, want %s, which netnice was", pid, x.pid())
	}
	f.begins(a)
	f.holds("run", testbed.Now(), 10e6, a)
	status := f.status()
	if !status.OnDemand || status.Nodes != 1 {
		t.Errorf("status of a daemon on demand: %+v", status)
	}
	made := objectsOf(t, status.PID)
	if children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children"); err == nil && len(children) > 0 {
		t.Errorf("the command has children that it did not start: %s", children)
	}
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-x.ended
	if w, ok := x.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || w.Signal() != syscall.SIGTERM {
		t.Errorf("it ended by %v, want SIGTERM", x.cmd.ProcessState)
	}
	f.cleared(status.PID, made, before, 3*time.Second)
}

// A daemon that a user started stays when the command ends.
func TestRunWithDaemon(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A, under: []string{netniceBinary, "run", "--up", "5MB/s"}}, flooding, f.to(a))
	pid := x.read("pid")
	f.begins(a)
	f.holds("run", testbed.Now(), 5e6, a)
	x.close()
	f.gone("pid:" + pid)
	if st := f.status(); st.OnDemand || st.PID != f.daemons[0].cmd.Process.Pid {
		t.Errorf("another daemon than before: %+v", st)
	}
}

// netnice run returns the command's exit status.
func TestRunPassesStatus(t *testing.T) {
	t.Parallel()
	s := upStage(t)
	data := filepath.Join(work, "data")
	if err := os.WriteFile(data, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"sh", "-c", "exit 0"}, 0, ""},
		{[]string{"sh", "-c", "exit 7"}, 7, ""},
		{[]string{"sh", "-c", "exit 125"}, 125, ""},
		{[]string{"sh", "-c", "kill -INT $$"}, -1, ""},
		{[]string{"no-such-command"}, 127, "not found"},
		{[]string{data}, 126, "permission denied"},
	} {
		r := s.netnice(append([]string{"run", "--up", "10MB/s", "--"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) || c.says == "" && r.err != "" {
			t.Errorf("exit code %d and %q expected: %v", c.code, c.says, r)
		}
	}
	if r := s.netnice("run", "--up", "10", "--", "true"); r.code != 125 || !strings.Contains(r.err, "unit") {
		t.Errorf("a rate without a unit: %v", r)
	}
	if !eventually(3*time.Second, func() bool { return len(s.nodes()) == 0 }) {
		t.Errorf("limits are left: %+v", s.nodes())
	}
}

// --scope holds a program's children in a cgroup of their own, which disappears with the last of them.
func TestRunScope(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestScope, TestScopeEndsWithItsProcesses")
	t.Parallel()
	f := newField(newStage(t))
	before := ours(t)
	a := f.ports + 1
	b := a + 1
	x := f.python(options{in: f.A, under: []string{netniceBinary, "run", "--up", "8MB/s", "--scope", "--"}}, `
pid = os.fork()
if pid == 0:
    os.setsid()
    pid = os.fork()
    if pid:
        say("child", pid)
        os._exit(0)
    os.closerange(0, 3)
    flood(connect(sys.argv[2]))
    os._exit(0)
os.waitpid(pid, 0)
say("pid", os.getpid())
flood(connect(sys.argv[1]))
`, f.to(a), f.to(b))
	child, err := strconv.Atoi(x.read("child"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	pid := x.read("pid")
	f.begins(a)
	f.begins(b)
	f.holds("scope", testbed.Now(), 8e6, a, b)
	status := f.status()
	made := objectsOf(t, status.PID)
	var path string
	for name, n := range f.nodes() {
		path = strings.TrimPrefix(name, "cgroup:")
		if !strings.Contains(path, "run-"+pid) || n.Processes != 2 {
			t.Errorf("ls shows %s with %d processes, want a cgroup for run-%s with 2", name, n.Processes, pid)
		}
	}
	dir := filepath.Join(cgroupMount(), path)
	if members, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(strings.Fields(string(members))) != 2 {
		t.Errorf("in the cgroup %s: %q, %v", dir, members, err)
	}
	x.close()
	f.holds("the child alone", testbed.Now(), 8e6, b)
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.cleared(status.PID, made, before, 4*time.Second)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup %s is there still", dir)
	}
}

// `netnice up`, set and `down` work as for an administrator.
func TestUpAndDown(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(newStage(t))
	before := ours(t)
	r := f.netnice("up")
	if r.code != 0 || !strings.Contains(r.out, "the daemon is up") {
		t.Fatal(r)
	}
	status := f.status()
	if r := f.netnice("up"); r.code != 0 || !strings.Contains(r.out, "unchanged") {
		t.Errorf("up again: %v", r)
	}
	if again := f.status(); again.PID != status.PID || again.OnDemand {
		t.Errorf("up again changed the daemon from %+v to %+v", status, again)
	}
	x := f.send(testbed.SenderConfig{UID: spare})
	f.holds("netnice PID RATE", f.must(x.pid(), "40mbit"), 5e6, x.port)
	if r := f.netnice(x.pid()); r.code != 0 || !strings.Contains(r.out, "5 MB/s") {
		t.Errorf("netnice PID: %v", r)
	}
	f.free("netnice PID 0", f.must(x.pid(), "0"), freely, x.port)
	f.holds("nlimit", f.must("nlimit", "-p", x.pid(), "-o", "4000000"), 4e6, x.port)
	made := objectsOf(t, status.PID)
	f.free("after down", f.must("down"), freely, x.port)
	f.cleared(status.PID, made, before, 2*time.Second)
}

// A limit without a daemon starts one, which leaves with the limit.
func TestSetWithoutDaemon(t *testing.T) {
	t.Parallel()
	f := newField(newStage(t))
	before := ours(t)
	x := f.send(testbed.SenderConfig{})
	f.holds("set", f.must("set", "--pid", x.pid(), "--up", "5MB/s"), 5e6, x.port)
	status := f.status()
	made := objectsOf(t, status.PID)
	f.free("unset", f.must("unset", "--pid", x.pid()), freely, x.port)
	f.cleared(status.PID, made, before, 3*time.Second)
}
