package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

const runFolder = "/run/netnice"

// A user empties /run. The daemon makes its socket again, commands name the daemon's process until then, and limits
// hold all the while.
func TestRunFolderRemoved(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := upStage(t)
	name := itoa(spare)
	s.must("set", "--user", name, "--up", "1MB/s")
	for _, mounted := range []bool{false, true} {
		s.do(func() error {
			if mounted {
				return unix.Mount("tmpfs", runFolder, "tmpfs", 0, "mode=0755")
			}
			return os.RemoveAll(runFolder)
		})
		if r := s.netnice("ls"); r.code != 0 && !strings.Contains(r.err, fmt.Sprintf("(pid %d)", s.daemons[0].cmd.Process.Pid)) {
			t.Errorf("%v, want the daemon's process", r)
		}
		if !eventually(5*time.Second, func() bool { return s.netnice("ls").code == 0 }) {
			t.Fatalf("the daemon is not found on its socket: %v", s.netnice("ls"))
		}
		if r := s.asUser("ls"); r.code != 0 || !strings.Contains(r.out, "user:") {
			t.Errorf("a user lists limits: %v", r)
		}
		if r := s.netnice("up"); r.code != 0 || !strings.Contains(r.out, "unchanged") {
			t.Errorf("up: %v", r)
		}
	}
	if n := s.nodes()["user:"+name]; len(n.Limits) != 1 {
		t.Errorf("limits are %+v", n.Limits)
	}
	s.must("down")
	<-s.daemons[0].ended
	s.do(func() error { return unix.Unmount(runFolder, unix.MNT_DETACH) })
}

// A daemon hangs, and its socket is gone: netnice down ends it and lifts its limits.
func TestDownOfStoppedDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cli TestScripts/unreachable")
	t.Parallel()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{})
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	d := f.daemons[0]
	if err := d.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.do(func() error { return os.RemoveAll(runFolder) })
	if r := f.netnice("ls"); r.code != 5 || !strings.Contains(r.err, fmt.Sprintf("(pid %d)", d.cmd.Process.Pid)) {
		t.Errorf("%v, want the daemon's process", r)
	}
	f.free("after down", f.must("down"), freely, x.port)
	<-d.ended
}
