package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Descendants of ended processes with limits keep these limits when another release takes over, one limit within the
// other. Among them are long-lived descendants, and some that fork meanwhile and end.
func TestAnotherReleaseOrphans(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestAnotherRelease and internal/daemon TestTreeOutlivesItsRoot")
	t.Parallel()
	const outer, inner = 2e6, 500e3
	f := newField(upStage(t))
	a := f.ports + 1
	b, c := a+1, a+2
	x := f.python(options{in: f.A}, `
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
def child(f):
    pid = os.fork()
    if pid == 0:
        f()
        os._exit(0)
    return pid
def hops():
    say("pid", os.getpid())
    signal.sigwait({signal.SIGUSR1})
    while True:
        try:
            with connect(sys.argv[3]) as s:
                for _ in range(3):
                    s.sendall(bytes(3000))
                    time.sleep(0.005)
        except OSError:
            time.sleep(0.01)
        if os.fork():
            os._exit(0)
def second():
    say("pid", os.getpid())
    child(lambda: flood(connect(sys.argv[2])))
    signal.pause()
def first():
    say("pid", os.getpid())
    child(lambda: flood(connect(sys.argv[1])))
    child(second)
    wait()
    child(hops)
    signal.pause()
child(first)
signal.pause()
`, f.to(a), f.to(b), f.to(c))
	first, second := x.read("pid"), x.read("pid")
	x.tell("hop")
	hops := x.read("pid")
	send := func(sig syscall.Signal, pid string) {
		t.Helper()
		number, err := strconv.Atoi(pid)
		if err == nil {
			err = syscall.Kill(number, sig)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.must("set", "--pid", second, "--up", "500kB/s")
	at := f.must("set", "--pid", first, "--up", "2MB/s")
	send(syscall.SIGUSR1, hops)
	f.holds("before", at, outer, a, b, c)
	for _, pid := range []string{first, second} { // their limits stay
		send(syscall.SIGKILL, pid)
	}
	f.holds("orphans", testbed.Now(), outer, a, b, c)
	f.holds("orphans of the inner one", testbed.Now(), inner, b)

	since := testbed.Now()
	f.daemons[0].kill()
	f.otherLayout("unknown")
	f.daemon()
	up := testbed.Now().Add(time.Second)
	f.until(up)
	f.noGap(since, up, outer, a, b, c)
	f.holds("orphans, in the second release", up, outer, a, b, c)
	f.holds("orphans of the inner one, in the second release", up, inner, b)
	nodes := f.nodes()
	if len(nodes) != 2 || nodes["pid:"+second].Parent != nodes["pid:"+first].ID || nodes["pid:"+second].Processes != 1 {
		t.Errorf("of the limits there are left: %+v", nodes)
	}
	if got := nodes["pid:"+first].Processes; got < 3 {
		t.Errorf("%d processes are in the outer tree", got)
	}
}

// Descendants that one rule limits together keep their limit, too.
func TestAnotherReleaseOrphansOfRule(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestAnotherRelease and internal/daemon TestRulesOutliveTheDaemon")
	t.Parallel()
	sessionUser := newUsers()
	const limit = 1e6
	r := newRuled(t, strings.Replace(sessions("session", sessionUser), "up", "share = 'all'\nup", 1))
	session, free := copyFrom(t, "/bin/sh", "session"), copyAs(t, "free")
	a := r.ports + 1
	b := a + 1
	for i, p := range []uint16{a, b} {
		x := r.script(options{in: r.A, uid: sessionUser + uint32(i)}, session, "-c",
			"read start; "+strings.Join([]string{free, agentName, agentFlood, r.to(p)}, " ")+" & read end")
		r.assertWithin("the rule holds", 2*time.Second, func() bool { return r.ruleMembers("all session sessions") == i+1 })
		x.tell("start")
		r.assertWithin("its child, too", 2*time.Second, func() bool { return r.ruleMembers("all session sessions") == i+2 })
		if err := syscall.Kill(x.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	r.holds("orphans", testbed.Now().Add(500*time.Millisecond), limit, a, b)
	r.daemons[0].kill()
	r.otherLayout("unknown")
	r.daemon()
	r.holds("orphans, in the second release", testbed.Now().Add(500*time.Millisecond), limit, a, b)
	if got := r.ruleMembers("all session sessions"); got != 2 {
		t.Errorf("the rule holds for %d processes", got)
	}
}
