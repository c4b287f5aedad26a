package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Nodes appear and disappear in the middle of a path, around and inside nodes with live children that send. The
// limits that stay on the path hold all the time.
func TestPathChangesUnderTraffic(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestNestedTrees and TestChangeInMidTransfer")
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	a := f.ports + 1
	b, c := a+1, a+2
	x := f.python(options{in: f.A}, nested, f.to(a), f.to(b), f.to(c))
	outer, middle, inner := x.read("pid"), x.read("pid"), x.read("pid")

	const innerLimit, outerLimit = 500e3, 3e6
	f.must("set", "--pid", inner, "--up", "500kB/s")
	at := f.must("set", "--pid", outer, "--up", "3MB/s")
	f.until(at.Add(2 * settle))
	begin := f.wire()
	for range 8 {
		f.must("set", "--pid", middle, "--up", "1MB/s")
		time.Sleep(100 * time.Millisecond)
		f.must("unset", "--pid", middle)
		time.Sleep(100 * time.Millisecond)
	}
	f.remains("the outer limit", begin, outerLimit)
	f.bounds("the inner limit, the middle one coming and going", begin.at, innerLimit, c)

	// Now the middle limit stays, and the limit around it appears and disappears.
	f.must("set", "--pid", middle, "--up", "1MB/s")
	after := f.must("unset", "--pid", outer).Add(settle)
	f.until(after)
	for range 8 {
		f.must("set", "--pid", outer, "--up", "3MB/s")
		time.Sleep(100 * time.Millisecond)
		f.must("unset", "--pid", outer)
		time.Sleep(100 * time.Millisecond)
	}
	f.bounds("the inner limit, the outer one coming and going", after, innerLimit, c)
	f.bounds("the middle limit, the outer one coming and going", after, 1e6, b, c)

	// Then the limit inside does so.
	f.must("set", "--pid", outer, "--up", "3MB/s")
	after = testbed.Now().Add(settle)
	f.until(after)
	begin = f.wire()
	for range 8 {
		f.must("unset", "--pid", inner)
		time.Sleep(100 * time.Millisecond)
		f.must("set", "--pid", inner, "--up", "500kB/s")
		time.Sleep(100 * time.Millisecond)
	}
	f.remains("the outer limit, the inner one coming and going", begin, outerLimit)
	f.bounds("the middle limit, the inner one coming and going", after, 1e6, b, c)
}

// remains checks that a limit has held and was used since an instant.
func (f *field) remains(what string, since wired, limit float64) {
	f.t.Helper()
	now := f.wire()
	rate, _ := now.since(since)
	f.t.Logf("%s: %.3f in %v", what, rate/limit, now.at.Sub(since.at).Round(time.Millisecond))
	if err := now.inBudget(since, limit, evadeBurst); err != nil {
		f.t.Errorf("%s: %v", what, err)
	}
	if rate < 0.85*limit && !excused(f.t, since.at, now.at) {
		f.t.Errorf("%s: only %.3f of it is used (CPUs %.0f%% busy)", what, rate/limit, 100*cpus.busy(since.at, now.at))
	}
}

// bounds checks that no more than a limit left for the ports from an instant until now.
func (f *field) bounds(what string, since testbed.Instant, limit float64, ports ...uint16) {
	f.t.Helper()
	now := testbed.Now()
	rate, took := f.rate(since, now, ports...), now.Sub(since)
	f.t.Logf("%s: %.3f in %v", what, rate/limit, took.Round(time.Millisecond))
	if rate > limit*(1.02+2*evadeBurst.Seconds()/took.Seconds()) {
		f.t.Errorf("%s: %.0f IP bytes/s", what, rate)
	}
}

// A process forks without end while the limit on its tree is set, lifted and set again: netnice overlooks no child.
func TestForksWhileLimitIsSet(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	x := f.python(options{in: f.A}, evader+`
import ctypes
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are ours
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def hop():
    s = socket.create_connection(there)
    while True:
        end = time.monotonic() + 0.004
        while time.monotonic() < end:
            s.send(bytes(5000))
            time.sleep(0.001)
        if os.fork():
            os._exit(0)
ready()
processes(4, hop)
`, f.to(testbed.DefaultPort), "["+f.B6.String()+"]:5001")
	x.read("ready")
	x.tell("go")
	x.read("going")
	const limit, rounds, least = 1e6, 6, 0.25
	sum := 0.0
	for range rounds {
		at := f.must("set", "--pid", x.pid(), "--up", "1MB/s")
		f.until(at.Add(2 * settle))
		begin := f.wire()
		time.Sleep(400 * time.Millisecond)
		end := f.wire()
		rate, _ := end.since(begin)
		t.Logf("%.3f of the limit", rate/limit)
		if err := end.inBudget(begin, limit, 2*evadeBurst); err != nil {
			t.Error(err)
		}
		sum += rate
		f.must("unset", "--pid", x.pid())
		time.Sleep(50 * time.Millisecond)
	}
	// In a single round the connections may wait for TCP's timer: they were without a limit just before.
	if sum < least*rounds*limit {
		t.Errorf("the processes send only %.0f bytes/s in the mean", sum/rounds)
	}
}

// A process tree is in a cgroup, and the cgroup contains processes of a user: each limit on the path covers all
// processes below it.
func TestTreeInCgroupOfUser(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestNestedTrees, TestUserLimitsOwnProcess and TestCgroup")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	dir, path := cgroup(t, "path")
	const text = `
wait()
say("going")
if os.fork() == 0:
    flood(connect(sys.argv[1]))
    os._exit(0)
flood(connect(sys.argv[1]))
`
	a := f.ports + 1
	b, c := a+1, a+2
	x := f.python(options{in: f.A, cgroup: dir, uid: spare}, text, f.to(a))
	y := f.python(options{in: f.A, cgroup: dir, uid: spare}, text, f.to(b))
	z := f.python(options{in: f.A, uid: spare}, text, f.to(c))
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	f.must("set", "--cgroup", path, "--up", "3MB/s")
	f.must("set", "--user", itoa(spare), "--up", "10MB/s")
	for _, p := range []*script{x, y, z} {
		p.tell("go")
		p.read("going")
	}
	at := testbed.Now().Add(settle)
	f.holdsFor("tree", at, span, 1e6, 0.03, a)
	f.holdsFor("cgroup with the tree", at, span, 3e6, 0.03, a, b)
	f.holdsFor("user with both", at, span, 10e6, 0.03, a, b, c)
	// The test lowers the limits from the outer one to the inner one. Each holds at once, without excess for earlier
	// chunks.
	at = f.must("set", "--user", itoa(spare), "--up", "2MB/s")
	f.holdsFor("user, lowered", at, span, 2e6, 0.03, a, b, c)
	f.holdsFor("user, lowered a while ago", at.Add(time.Second), span, 2e6, 0.03, a, b, c)
	at = f.must("set", "--cgroup", path, "--up", "500kB/s")
	f.holdsFor("cgroup, lowered", at, span, 500e3, 0.03, a, b)
	f.holdsFor("user, still", at, span, 2e6, 0.03, a, b, c)
}

// A tree has processes of several users, and these users have processes outside of it too.
func TestTreeAcrossUsers(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUserLimitsOwnProcess and TestNestedTrees")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	const text = `
def child(to, uid):
    if os.fork() == 0:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        flood(connect(to))
        os._exit(0)
wait()
say("going")
for to, uid in zip(sys.argv[1::2], sys.argv[2::2]):
    child(to, int(uid))
wait()
`
	a := f.ports + 1
	b, c, d := a+1, a+2, a+3
	first, second := itoa(spare), itoa(spare+1)
	in := f.python(options{in: f.A}, text, f.to(a), first, f.to(b), second, f.to(c), itoa(spare+2))
	out := f.python(options{in: f.A}, text, f.to(d), first)
	f.must("set", "--user", first, "--up", "2MB/s")
	f.must("set", "--user", second, "--up", "500kB/s")
	f.must("set", "--pid", in.pid(), "--up", "4MB/s")
	for _, p := range []*script{in, out} {
		p.tell("go")
		p.read("going")
	}
	at := testbed.Now().Add(settle)
	f.holdsFor("the tree", at, span, 4e6, 0.03, a, b, c)
	f.holdsFor("a user, inside and outside", at, span, 2e6, 0.03, a, d)
	f.holdsFor("another user", at, span, 500e3, 0.03, b)
	at = f.must("set", "--pid", in.pid(), "--up", "1MB/s")
	f.holdsFor("the tree, lowered", at, span, 1e6, 0.03, a, b, c)
	f.holdsFor("a user, still", at, span, 2e6, 0.03, a, d)
}
