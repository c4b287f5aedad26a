package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// nested is a program of three nested processes; each sends to a port of its own. It prints their pids.
const nested = `
def child(ports):
    s = connect(ports[0])
    say("pid", os.getpid())
    if len(ports) > 1:
        if os.fork() == 0:
            s.close()  # who holds a connection that nobody sends on could be either
            child(ports[1:])
    flood(s)
    os._exit(0)
child(sys.argv[1:])
`

// Trees nest: every limit on the path holds. The limits around and inside the middle one stay when that is lifted.
func TestNestedTrees(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	b, c := a+1, a+2
	x := f.python(options{in: f.A}, nested, f.to(a), f.to(b), f.to(c))
	outer, middle, inner := x.read("pid"), x.read("pid"), x.read("pid")

	f.must("set", "--pid", inner, "--up", "1MB/s")
	f.must("set", "--pid", outer, "--up", "5MB/s")
	at := f.must("set", "--pid", middle, "--up", "2MB/s") // set last, with both others in place
	f.holds("inner", at, 1e6, c)
	f.holds("middle with inner", at, 2e6, b, c)
	f.holds("all", at, 5e6, a, b, c)

	nodes := f.nodes()
	for _, n := range []struct {
		pid, parent string
		processes   int
	}{{outer, "", 3}, {middle, outer, 2}, {inner, middle, 1}} {
		got := nodes["pid:"+n.pid]
		if got.Parent != nodes["pid:"+n.parent].ID || got.Processes != n.processes {
			t.Errorf("%s has parent %d and %d processes, want %d and %d",
				n.pid, got.Parent, got.Processes, nodes["pid:"+n.parent].ID, n.processes)
		}
	}

	at = f.must("unset", "--pid", middle)
	f.holds("inner, middle lifted", at, 1e6, c)
	f.holds("all, middle lifted", at, 5e6, a, b, c)
	if got := f.rate(at.Add(settle), at.Add(settle+span), b); got < 1.5e6 {
		t.Errorf("the middle one is at %.0f bytes/s after its limit of 2 MB/s was lifted", got)
	}

	at = f.must("unset", "--pid", outer)
	f.holds("inner, outer lifted", at, 1e6, c)
	f.free("outer lifted", at, 50e6, a, b)
	f.free("inner lifted", f.must("unset", "--pid", inner), 50e6, c)
}

// A tree may cross users, like that of fair-inetd: its limit covers all of it, and each user's limit covers the
// user's processes.
func TestTreeCrossesUsers(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestNestedTrees and TestUserLimitsOwnProcess")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	a := f.ports + 1
	b := a + 1
	x := f.python(options{in: f.A}, `
def child(to, uid):
    if os.fork() == 0:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        s = connect(to)
        say("ready")
        flood(s)
        os._exit(0)
wait()
uid = int(sys.argv[1])
child(sys.argv[2], uid)
child(sys.argv[3], uid + 1)
wait()
`, itoa(spare), f.to(a), f.to(b))
	f.must("set", "--user", itoa(spare), "--up", "2MB/s")
	f.must("set", "--pid", x.pid(), "--up", "8MB/s")
	x.tell("go")
	x.read("ready")
	x.read("ready")
	at := testbed.Now().Add(100 * time.Millisecond)
	f.holds("the tree", at, 8e6, a, b)
	f.holds("the limited user in it", at, 2e6, a)
	f.holds("user lifted", f.must("unset", "--user", itoa(spare)), 8e6, a, b)
}
