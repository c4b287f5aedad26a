package e2e

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testutil"
)

// until reads events up to one of a type ("" = any) about a subject ("" = any), and returns it.
func (x *script) until(t *testing.T, kind api.EventType, subject string) api.Event {
	t.Helper()
	var passed []string
	for end := time.After(20 * time.Second); ; {
		select {
		case line, ok := <-x.lines:
			var e api.Event
			if err := json.Unmarshal([]byte(line), &e); !ok || err != nil || e.Version != api.Version || e.Time.IsZero() {
				t.Fatalf("%q is no event (%v); before it %q\n%s", line, err, passed, x.wrong.String())
			}
			passed = append(passed, line)
			if kind == "" || e.Type == kind && (subject == "" || e.Subject != nil && e.Subject.String() == subject) {
				return e
			}
		case <-end:
			t.Fatalf("no event %s of %q comes, only %q\n%s", kind, subject, passed, x.wrong.String())
		}
	}
}

// netnice monitor reports the events of a limited program that floods as they happen, also across the death of a
// daemon. Another user sees none of them.
func TestMonitor(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestEventsOfLimits, TestEventsOfTraffic, TestEventsByHTTP")
	t.Parallel()
	spare := newUsers()
	s := upStage(t)
	f := newField(s)
	all := f.script(options{}, netniceBinary, "monitor", "--json")
	other := f.script(options{uid: spare + 5}, netniceBinary, "monitor", "--json")
	if e := all.until(t, api.EventHello, ""); e.PID != f.daemons[0].cmd.Process.Pid {
		t.Errorf("%+v is not the daemon's", e)
	}
	other.until(t, api.EventHello, "")
	x := f.python(options{in: f.A, uid: spare + 4}, datagramFlood, f.B4.String(), "9", "1400", "0")
	x.read("ready")
	pid := "pid:" + x.pid()
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	if e := all.until(t, api.EventLimitSet, pid); e.By != "admin" || e.Processes != 1 || len(e.Limits) != 1 || e.Limits[0].BytesPerSec != 1e6 {
		t.Errorf("the limit is told as %+v", e)
	}
	var st unix.Stat_t
	if err := unix.Stat(f.A.Path(), &st); err != nil {
		t.Fatal(err)
	}
	// The first flood may exceed the limit until the queue exists, or it may not: until skips such events.
	if e := all.until(t, api.EventQueueMade, ""); e.Direction != api.Up || e.Netns != uint32(st.Ino) {
		t.Errorf("the queue in namespace %d is told as %+v", st.Ino, e)
	}
	f.daemons[0].kill()
	f.daemon()
	if e := all.until(t, api.EventHello, ""); e.PID != f.daemons[1].cmd.Process.Pid || e.Adopted != 1 || e.SetAgain != 0 {
		t.Errorf("the second daemon, which took over one limit, says %+v", e)
	}
	f.must("set", "--pid", x.pid(), "--up", "2MB/s")
	all.until(t, api.EventLimitChanged, pid)
	if err := syscall.Kill(x.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	all.until(t, api.EventLimitEnded, pid)
	all.until(t, api.EventQueueGone, "")
	f.must("set", "--user", itoa(spare+5), "--up", "1MB/s")
	f.must("down")
	s.daemonGone = true
	if e := all.until(t, api.EventDaemonLeaves, ""); e.LimitsStay {
		t.Errorf("nothing stays after netnice down, which is told as %+v", e)
	}
	for e := (api.Event{}); e.Type != api.EventDaemonLeaves; {
		e = other.until(t, api.EventType(""), "")
		if e.Subject != nil && e.Subject.String() != "user:"+itoa(spare+5) {
			t.Errorf("somebody else is told %+v", e)
		}
	}
	select {
	case <-all.ended: // no daemon answers any more
		if code := all.cmd.ProcessState.ExitCode(); code != 5 {
			t.Errorf("monitor ended with %d", code)
		}
	case <-time.After(25 * time.Second):
		t.Error("monitor goes on without a daemon")
	}
}
