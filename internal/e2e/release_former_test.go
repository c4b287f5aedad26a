package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
)

// TestFormerRelease replaces the daemon of a former release under traffic. The limits hold throughout, also while the
// former program is tried again, which refuses the newer state. `netnice down` then cleans up after both.
func TestFormerRelease(t *testing.T) {
	former := os.Getenv("NETNICE_TEST_FORMER")
	if former == "" {
		t.Skip("only what NETNICE_TEST_FORMER names: the program of a former release")
	}
	t.Parallel()
	spare := newUsers()
	const sent, received = 5e6, 30e6
	s := newStage(t)
	s.preload = true // the former program may not know that flag
	before := ours(t)
	f := newField(s)
	s.program = former
	first := s.daemon()
	x := f.send(testbed.SenderConfig{Connections: 2, UID: spare})
	y := f.send(testbed.SenderConfig{})
	s.must("set", "--user", itoa(spare), "--up", "10MB/s")
	s.must("set", "--pid", itoa(f.rx.PID()), "--down", "30MB/s")
	at := s.must("set", "--pid", x.pid(), "--up", "5MB/s")
	f.holds("sent by the former release", at, sent, x.port)
	f.holds("received by the former release", at, received, x.port, y.port)
	made := objectsOf(t, first.cmd.Process.Pid)
	since := testbed.Now()
	first.kill()

	s.program = ""
	second := s.daemon()
	up := testbed.Now()
	f.until(up)
	f.noGap(since, up, sent, x.port)
	f.holds("sent by the newer release", up, sent, x.port)
	f.holds("received by the newer release", up, received, x.port, y.port)
	if nodes := s.nodes(); len(nodes) != 3 {
		t.Errorf("%d limits were taken over: %+v", len(nodes), nodes)
	}
	second.kill()

	s.program = former
	begin := testbed.Now()
	r := s.netnice("daemon", "--config-dir", "/run/no-rules")
	if r.code == 0 || !strings.Contains(r.err, "version") {
		t.Errorf("the former daemon ends with %d and says %q", r.code, r.err)
	}
	t.Logf("the former daemon says %q", r.err)
	f.holds("sent without a daemon", begin, sent, x.port)
	f.holds("received without a daemon", begin, received, x.port, y.port)

	s.program = ""
	f.free("lifted", s.must("down"), freely, x.port)
	s.leaves(made, before)
}
