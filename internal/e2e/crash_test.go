package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A test kills the daemon with `kill -9` in mid-transfer (demand 5 of the core). The limit holds, a restarted daemon
// adopts it, and no resource leaks.

func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	before, files := ours(t), s.files()
	if len(files) > 0 {
		t.Fatalf("the stage is not empty: %q", files)
	}
	f := newField(s)
	first := s.daemon()
	x := f.send(testbed.SenderConfig{Connections: 2, UID: spare})
	s.must("set", "--pid", x.pid(), "--up", "10MB/s")
	f.holds("with a daemon", s.must("set", "--user", itoa(spare), "--up", "20MB/s"), 10e6, x.port)

	made := objectsOf(t, first.cmd.Process.Pid)
	first.kill()
	killed := testbed.Now()
	f.holds("without a daemon", killed, 10e6, x.port)
	r := s.netnice("ls")
	if r.code != 5 || !strings.Contains(r.err, "limits of an earlier one still hold") {
		t.Errorf("ls without a daemon: %v", r)
	}
	// Its new connections are limited, too.
	if err := x.Grow(2); err != nil {
		t.Fatal(err)
	}
	child, err := x.Fork(testbed.SenderConfig{To: f.to(x.port + 1)})
	if err != nil {
		t.Fatal(err)
	}
	f.holds("grown and forked without a daemon", testbed.Now(), 10e6, x.port, x.port+1)

	second := s.daemon()
	f.holds("adopted", testbed.Now(), 10e6, x.port, x.port+1)
	nodes := s.nodes()
	tree, user := nodes["pid:"+x.pid()], nodes["user:"+itoa(spare)]
	if len(nodes) != 2 || len(tree.Limits) != 1 || tree.Limits[0].BytesPerSec != 10e6 ||
		len(user.Limits) != 1 || user.Limits[0].BytesPerSec != 20e6 {
		t.Errorf("the second daemon adopted %+v", nodes)
	}
	if tree.Processes != 2 || tree.Up.Bytes < 30e6 {
		t.Errorf("%d processes that sent %d bytes (child %d), want 2 and more than 30 MB", tree.Processes, tree.Up.Bytes, child)
	}
	f.holds("changed", s.must("set", "--pid", x.pid(), "--up", "5MB/s"), 5e6, x.port, x.port+1)

	maps.Copy(made, objectsOf(t, second.cmd.Process.Pid))
	if len(made) < 20 {
		t.Errorf("only %d programs, maps and links were seen", len(made))
	}
	f.free("after down", s.must("down"), freely, x.port, x.port+1)
	<-second.ended
	s.leaves(made, before)
}

// The test kills a daemon, and `netnice down` alone lifts its limits.
func TestDownAfterKill(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	before := ours(t)
	f := newField(s)
	d := s.daemon()
	x := f.send(testbed.SenderConfig{})
	s.must("set", "--pid", x.pid(), "--up", "5MB/s")
	made := objectsOf(t, d.cmd.Process.Pid)
	d.kill()
	f.free("after down", s.must("down"), freely, x.port)
	s.leaves(made, before)
	if r := s.netnice("down"); r.code != 0 || !strings.Contains(r.out, "down already") {
		t.Errorf("a second down: %v", r)
	}
}

// The subject ends while no daemon runs: the next daemon lifts the limit of that subject.
func TestSubjectEndsWithoutDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLimitEndsWithFamily and internal/daemon TestRestartAdopts")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{})
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	f.must("set", "--user", itoa(spare), "--up", "5MB/s")
	f.daemons[0].kill()
	if _, err := x.Stop(); err != nil {
		t.Fatal(err)
	}
	f.daemon()
	var left []string
	if !eventually(3*time.Second, func() bool {
		left = nil
		for name := range f.nodes() {
			left = append(left, name)
		}
		return len(left) == 1 && left[0] == "user:"+itoa(spare)
	}) {
		t.Errorf("limits on %q after the restart, want the user's alone", left)
	}
}

// All state of the machine that precedes a limit is there after it, too.
func TestDownLeavesNothing(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	before := ours(t)
	sysctls := sysctlsOf(t)
	f := newField(s)
	qdiscs := f.qdiscs()
	d := s.daemon()
	made := objectsOf(t, d.cmd.Process.Pid)
	dir, path := cgroup(t, "down")
	x := f.send(testbed.SenderConfig{UID: spare})
	s.must("set", "--pid", x.pid(), "--up", "5MB/s")
	s.must("set", "--user", itoa(spare), "--up", "6MB/s")
	s.must("set", "--cgroup", path, "--up", "6MB/s")
	maps.Copy(made, objectsOf(t, d.cmd.Process.Pid))
	if got := sysctlsOf(t); got != sysctls {
		t.Error("sysctls under net changed while a limit stands")
	}
	if got := f.qdiscs(); got != qdiscs {
		t.Errorf("queueing disciplines changed from %s to %s while a limit stands", qdiscs, got)
	}
	s.must("down")
	<-d.ended
	s.leaves(made, before)
	if got := sysctlsOf(t); got != sysctls {
		t.Error("sysctls under net changed")
	}
	if got := f.qdiscs(); got != qdiscs {
		t.Errorf("queueing disciplines changed from %s to %s", qdiscs, got)
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
		t.Errorf("the test's own cgroup: %v", err)
	}
}
