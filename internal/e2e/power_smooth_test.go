package e2e

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// gapsPython uses all processor time that it gets. Each second it prints the lengths of its runs and of its pauses,
// as medians in milliseconds, and the instant from which they count.
const gapsPython = `
import time
now = time.monotonic
print("ready", flush=True)
end = last = begun = now()
ran, stood = [], []
while True:
    at = now()
    if at - last > 0.0003:
        ran.append(last - begun)
        stood.append(at - last)
        begun = at
        if at - end > 1:
            ran.sort()
            stood.sort()
            print(len(ran), 1000*ran[len(ran)//2], 1000*stood[len(stood)//2], end, flush=True)
            ran, stood, end = [], [], at
    last = at
`

// gaps returns the program's next line about a second that begins now or later.
func (p *runner) gaps() (times, ran, stood float64) {
	p.t.Helper()
	for now := testbed.Now(); ; {
		var list []float64
		text := p.line()
		if err := json.Unmarshal([]byte("["+strings.ReplaceAll(text, " ", ",")+"]"), &list); err != nil || len(list) != 4 {
			p.t.Fatalf("of gaps it says %q", text)
		}
		if testbed.Instant(list[3]*1e9) >= now {
			return list[0], list[1], list[2]
		}
	}
}

// standsStill checks the lengths of the runs and of the pauses, in milliseconds. One second of several is enough,
// since a busy machine proves nothing.
func (p *runner) standsStill(what string, ran, stood float64) {
	p.t.Helper()
	var gotRan, gotStood float64
	for range 6 {
		_, gotRan, gotStood = p.gaps()
		p.t.Logf("%s: it runs for %.3f ms and stands still for %.3f", what, gotRan, gotStood)
		if gotRan > ran-0.25 && gotRan < ran+0.25 && gotStood > stood-0.25 && gotStood < stood+0.25 {
			return
		}
	}
	p.t.Errorf("%s: it runs for %.3f ms and stands still for %.3f, want %g and %g", what, gotRan, gotStood, ran, stood)
}

// A running program gets its share in slots, next to programs that want all processors. A killed daemon leaves the
// ceiling, and no process stays stopped. The next daemon keeps the slots again.
func TestPowerSlots(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestPower and internal/cpu TestSlots, TestRhythm")
	// Not parallel: it needs the processors.
	spare := newUsers()
	s := newStage(t)
	p := s.runs(0, python, "-c", gapsPython)
	p.line()
	for range 2 * cpu.Online() {
		s.runs(0, python, "-c", spinPython, "1").line()
	}
	before := groupOf(t, p.Process.Pid)
	d := s.daemon()
	s.must("power", p.pid(), "50", "--slots", "1ms")
	p.standsStill("one slot of two", 1, 1)
	p.has("one slot of two", 50, 2)
	s.must("power", p.pid(), "25", "--slot", "2ms")
	p.standsStill("one of four, of 2 ms", 2, 6)
	p.has("one of four, of 2 ms", 25, 2)

	s.must("power", p.pid(), "50", "--slots", "1ms")
	d.kill()
	if got := p.percent(2 * time.Second); got < 25 || got > 52 {
		t.Errorf("without a daemon: %.1f per cent, want 25 to 52", got)
	}
	s.daemon()
	p.standsStill("with another daemon", 1, 1)
	p.has("with another daemon", 50, 2)
	s.must("power", p.pid(), "0")
	s.noGroups()
	if at := groupOf(t, p.Process.Pid); at != before {
		t.Errorf("it is in %s, not in %s", at, before)
	}

	own := s.runs(spare+59, python, "-c", spinPython, "1")
	own.line()
	for _, flag := range []string{"--slots=1ms", "--strict"} {
		cmd := s.command("power", own.pid(), "30", flag)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: spare + 59, Gid: spare + 59}}
		if r := s.run(cmd, nil); r.code == 0 || !strings.Contains(r.err, "sudo netnice power "+own.pid()) {
			t.Errorf("a user's %s: %v", flag, r)
		}
	}
	for _, words := range [][]string{{"200", "--slots", "1ms"}, {"-20", "--strict"}, {"30", "--slots", "1ms", "--strict"}, {"30", "--slots", "20ms"}, {"0", "--strict"}} {
		if r := s.netnice(append([]string{"power", p.pid()}, words...)...); r.code == 0 || !strings.Contains(r.err, "netnice power "+p.pid()+" 40 --slots 1ms") {
			t.Errorf("netnice power PID %q: %v", words, r)
		}
	}
	s.noGroups()
}

const (
	forkPython = `
import os, time
print("ready", flush=True)
while True:
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    if not os.fork():
        print(os.sched_getscheduler(0), flush=True)
        os._exit(0)
    os.wait()
`
	threadsPython = `
import threading, time
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
spin()
`
)

func policy(t *testing.T, pid int) uint32 {
	t.Helper()
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr.Policy
}

// A program of one thread gets its share by a deadline, which precedes every priority. Its children do not. A
// program of two threads gets the ceiling, and its user learns the reason. Nothing of the deadline is left.
func TestPowerStrict(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cpu TestStrictRunsAtOnce")
	// Not parallel: it needs the processors.
	s := newStage(t)
	p := s.runs(0, python, "-c", spinPython, "1")
	p.line()
	for range 2 * cpu.Online() {
		hog := s.runs(0, python, "-c", spinPython, "1")
		hog.line()
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, hog.Process.Pid, -15); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.netnice("power", p.pid(), "40", "--strict"); r.code != 0 || !strings.Contains(r.out, "40% of a processor by a deadline, guaranteed") {
		t.Fatalf("strict: %v", r)
	}
	p.has("by a deadline", 40, 1)
	if is := policy(t, p.Process.Pid); is != unix.SCHED_DEADLINE {
		t.Errorf("it has policy %d", is)
	}
	s.must("power", p.pid(), "20")
	if is := policy(t, p.Process.Pid); is != unix.SCHED_NORMAL {
		t.Errorf("with a ceiling only it has policy %d", is)
	}
	s.must("power", p.pid(), "60", "--strict")
	p.has("by a longer deadline", 60, 1)

	two := s.runs(0, python, "-c", threadsPython)
	two.line()
	r := s.netnice("power", two.pid(), "30", "--strict")
	if r.code != 0 || !strings.Contains(r.err, "it has no deadline") || strings.Contains(r.out, "deadline") {
		t.Errorf("of two threads: %v", r)
	}
	two.has("of two threads", 30, 2)
	if r := s.netnice("power", two.pid()); !strings.Contains(r.err, "it has no deadline") {
		t.Errorf("power PID: %v", r)
	}

	forks := s.runs(0, netniceBinary, "exec", "--strict", "20", python, "-c", forkPython)
	forks.line()
	if !eventually(10*time.Second, func() bool { return policy(t, forks.Process.Pid) == unix.SCHED_DEADLINE }) {
		t.Error("a command of one thread has no deadline")
	}
	for range 3 {
		if got := forks.line(); got != "0" {
			t.Errorf("a child has policy %s, want 0", got)
		}
	}
	s.must("down")
	for _, q := range []*runner{p, two, forks} {
		if is := policy(t, q.Process.Pid); is != unix.SCHED_NORMAL {
			t.Errorf("after netnice down %s has policy %d", q.pid(), is)
		}
	}
	s.noGroups()
}

// A deadline outlives the daemon. The next daemon knows it, and takes it back.
func TestPowerStrictKilledDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cpushare TestPowerSurvivesTheDaemon; deadlines without a daemon are tested here only")
	// Not parallel: it needs the processors.
	s := newStage(t)
	p := s.runs(0, python, "-c", spinPython, "1")
	p.line()
	d := s.daemon()
	s.must("power", p.pid(), "30", "--strict")
	d.kill()
	p.has("without a daemon", 30, 1)
	s.daemon().kill()
	if is := policy(t, p.Process.Pid); is != unix.SCHED_DEADLINE {
		t.Errorf("it has policy %d", is)
	}
	s.must("down")
	if is := policy(t, p.Process.Pid); is != unix.SCHED_NORMAL {
		t.Errorf("after netnice down it has policy %d", is)
	}
	s.noGroups()
}

// A reservation with a share of the rest is no ceiling. Beside others the program gets the slice and a part of the
// rest.
func TestPowerExtra(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cpushare TestPowerExtra")
	// Not parallel: it needs the processors.
	s := newStage(t)
	p := s.runs(0, python, "-c", spinPython, "1")
	p.line()
	s.must("reserve", "--pid", p.pid(), "--cpu-period", "20ms", "--cpu-slice", "10ms", "--cpu-extra")
	p.has("alone", 100, 8)
	for range 2 * cpu.Online() {
		s.runs(0, python, "-c", spinPython, "1").line()
	}
	time.Sleep(3 * time.Second)
	// It gets a third of the other half next to two others. It gets a half if the kernel has put one there and three
	// on the other processor: 67 to 75.
	p.has("beside two others on each processor", 72, 12)
	r := s.netnice("power", p.pid())
	if !strings.Contains(r.out, "10 ms of the processors in each 20 ms at least, and a share of the rest, guaranteed") {
		t.Errorf("netnice power PID: %v", r)
	}
	s.must("reserve", "--pid", p.pid(), "--release")
	s.noGroups()
}
