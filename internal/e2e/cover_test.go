package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// cgroupTree is a tree of cgroups X/one/inner, X/two, and Y. The egress program is attached to the lowest cgroup that
// holds all limited processes.
type cgroupTree struct {
	*field
	x, one, inner, two, y string // folders
}

func newCgroupTree(s *stage) *cgroupTree {
	g := &cgroupTree{field: newField(s)}
	g.x, _ = cgroup(s.t, "x")
	g.y, _ = cgroup(s.t, "y")
	g.one, g.two = g.below(g.x, "one"), g.below(g.x, "two")
	g.inner = g.below(g.one, "inner")
	return g
}

func (g *cgroupTree) below(dir, name string) string {
	g.t.Helper()
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if !eventually(3*time.Second, func() bool { return os.Remove(dir) == nil }) {
			g.t.Errorf("the cgroup %s cannot be removed", dir)
		}
	})
	return dir
}

func (g *cgroupTree) move(pid, dir string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0); err != nil {
		g.t.Fatal(err)
	}
}

// egress lists the links of egress programs that a process holds, with the id of the cgroup that each link is
// attached to.
func egress(t *testing.T, pid int) map[link.ID]uint64 {
	t.Helper()
	found := map[link.ID]uint64{}
	for o := range objectsOf(t, pid) {
		if o.kind != "link" {
			continue
		}
		l, err := link.NewFromID(link.ID(o.id))
		if err != nil {
			continue // closed meanwhile
		}
		if info, err := l.Info(); err == nil {
			if c := info.Cgroup(); c != nil && ebpf.AttachType(c.AttachType) == ebpf.AttachCGroupInetEgress {
				found[info.ID] = c.CgroupId
			}
		}
		_ = l.Close()
	}
	return found
}

// egressOn checks that the daemon's egress program is attached to one cgroup alone. A command attaches it at once;
// an event or a tick does so soon.
func (g *cgroupTree) egressOn(what string, d *daemon, dir string, soon bool) {
	g.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		g.t.Fatal(err)
	}
	var got []uint64
	look := func() bool {
		got = nil
		for _, id := range egress(g.t, d.cmd.Process.Pid) {
			got = append(got, id)
		}
		return slices.Equal(got, []uint64{st.Ino})
	}
	if soon && g.assertWithin(what, 3*time.Second, look) || !soon && look() {
		return
	}
	g.t.Errorf("%s: egress programs on the cgroups %v, want %d, %s", what, got, st.Ino, strings.TrimPrefix(dir, cgroupMount()))
}

// opener opens a connection for each line that it reads, and floods the connection.
const opener = `
say("ready")
while wait():
    threading.Thread(target=flood, args=(connect(sys.argv[1]),), daemon=True).start()
    say("open")
`

func (g *cgroupTree) opener(dir string) (x *script, port uint16) {
	g.ports++
	x = g.python(options{in: g.A, cgroup: dir}, opener, g.to(g.ports))
	x.read("ready")
	return x, g.ports
}

func open(x *script) testbed.Instant {
	x.t.Helper()
	x.tell("open")
	x.read("open")
	return testbed.Now()
}

func (g *cgroupTree) set(x *script, rate string) testbed.Instant {
	g.t.Helper()
	return g.must("set", "--pid", x.pid(), "--up", rate)
}

// The attachment moves up when a limited process moves to another cgroup, before the first connection there is set
// up. It moves down when the limit is lifted.
func TestEgressFollows(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	before := ours(t)
	g := newCgroupTree(s)
	d := s.daemon()
	x, a := g.opener(g.inner)
	stranger, b := g.opener(g.y)
	g.free("a stranger", open(stranger), freely, b)
	open(x)
	at := g.set(x, "5MB/s")
	g.egressOn("a process with a connection", d, g.inner, false)
	g.holds("in its cgroup", at, 5e6, a)
	g.free("a stranger beside it", at, freely, b)

	g.move(x.pid(), g.two)
	at = open(x)
	g.egressOn("moved, and a new connection", d, g.x, true)
	g.holds("moved, old and new connection", at, 5e6, a)

	g.move(x.pid(), g.y)
	at = open(x)
	g.egressOn("moved again", d, cgroupMount(), true)
	g.holds("moved again, three connections", at, 5e6, a)
	g.free("a stranger in the same cgroup", at, freely, b)

	y, c := g.opener(g.one)
	open(y)
	g.holds("a second process", g.set(y, "2MB/s"), 2e6, c)
	g.must("unset", "--pid", x.pid())
	g.egressOn("the first one lifted", d, g.one, true)
	g.holds("down again", testbed.Now(), 2e6, c)

	at = g.must("set", "--user", itoa(spare+25), "--up", "1MB/s")
	g.egressOn("with a limit on a user", d, cgroupMount(), false)
	g.holds("with a limit on a user", at, 2e6, c)
	g.must("unset", "--user", itoa(spare+25))
	g.egressOn("that is lifted", d, g.one, true)

	made := objectsOf(t, d.cmd.Process.Pid)
	s.must("down")
	<-d.ended
	s.leaves(made, before)
}

// A limit on the host attaches the program to the root of all cgroups.
func TestEgressFollowsHost(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEgressFollows and internal/enforce/pacing TestEgressOfOtherKinds; the host is tested here only")
	machineAlone(t) // the test limits the host
	s := newStage(t)
	g := newCgroupTree(s)
	d := s.daemon()
	x, port := g.opener(g.one)
	open(x)
	g.holds("a process", g.set(x, "2MB/s"), 2e6, port)
	g.egressOn("a process", d, g.one, false)
	g.must("set", "--host", "--up", "500MB/s")
	g.egressOn("with a limit on the host", d, cgroupMount(), false)
	g.must("unset", "--host")
	g.egressOn("that is lifted", d, g.one, true)
}

// A limit stands on a cgroup, also for the sockets that were in it before.
func TestEgressOfCgroups(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEgressFollows and internal/enforce/pacing TestEgressFollowsSockets")
	t.Parallel()
	g := newCgroupTree(upStage(t))
	d := g.daemons[0]
	x, a := g.opener(g.one)
	open(x)
	at := g.must("set", "--cgroup", strings.TrimPrefix(g.one, cgroupMount()), "--up", "5MB/s")
	g.egressOn("a cgroup", d, g.one, false)
	g.holds("a cgroup", at, 5e6, a)
	y, b := g.opener(g.y)
	open(y)
	g.move(y.pid(), g.two)
	at = g.must("set", "--cgroup", strings.TrimPrefix(g.two, cgroupMount()), "--up", "2MB/s")
	// Its socket belongs to the cgroup in which it was made.
	g.egressOn("a second one, with a socket from elsewhere", d, cgroupMount(), false)
	g.holds("a second one", at, 2e6, b)
	g.holds("the first one still", at, 5e6, a)
}

// Short connections send no more than their limit from the first byte on, after their process has moved to another
// cgroup.
func TestEgressFollowsShortConnections(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEgressFollows and TestShortConnections")
	t.Parallel()
	shortFromElsewhere(t, false)
}

// The same holds without a daemon: no daemon reacts to the event, so the guard has attached the program to the root.
func TestEgressGuarded(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEgressFollows and TestShortConnections")
	t.Parallel()
	shortFromElsewhere(t, true)
}

func shortFromElsewhere(t *testing.T, killed bool) {
	t.Helper()
	g := newCgroupTree(upStage(t))
	x := g.sender(testbed.SenderConfig{Mode: testbed.Short, Connections: 8, ShortWait: true})
	g.move(x.pid(), g.inner)
	g.must("set", "--pid", x.pid(), "--up", "1MB/s")
	g.egressOn("in its cgroup", g.daemons[0], g.inner, false)
	if killed {
		g.daemons[0].kill()
		time.Sleep(100 * time.Millisecond) // the guard takes a few ms, unless other programs take the CPUs
	}
	g.move(x.pid(), g.two)
	begin := x.begin()
	got := g.rate(begin, begin.Add(3*time.Second), x.port)
	if !killed {
		g.egressOn("moved", g.daemons[0], g.x, true)
	}
	t.Logf("short connections from another cgroup: %.3f of the limit", got/1e6)
	if got > 1.05e6 || got < 0.9e6 && !excused(t, begin, testbed.Now()) {
		t.Errorf("short connections send %.0f bytes/s under a limit of 1 MB/s", got)
	}
	report, err := x.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if report.Completed < 100 || report.Failed > 0 {
		t.Errorf("%d connections completed and %d failed", report.Completed, report.Failed)
	}
}

// A limited process uses sockets that another process made in another cgroup: a connection, a socket that is not
// connected yet, and the connections of a listener.
func TestEgressOfPassedSockets(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEgressFollows and internal/enforce/pacing TestEgressFollowsSockets")
	t.Parallel()
	const made = `
def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = os.fork()
if child == 0:
    theirs.recv(1)
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    s = socket.socket(fileno=fds[0])
    %s
    flood(s)
    os._exit(0)
say("pid", child)
wait()
s = socket.socket()
%s
ours.send(b"x")
socket.send_fds(ours, [b"x"], [s.fileno()])
s.close()
say("passed")
wait()
os.kill(child, 9)
`
	for name, text := range map[string][2]string{
		"connected": {`pass`, `s = connect(sys.argv[1])`},
		"fresh":     {`s.connect(address(sys.argv[1]))`, ``},
		"listening": {`s, _ = s.accept()`, `s.bind(address(sys.argv[2])); s.listen()`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newCgroupTree(upStage(t))
			port, service := g.ports+1, fmt.Sprintf("%s:9000", g.A4)
			if name == "listening" {
				port = testbed.DefaultPort + readers // a port at which the field's own receiver does not listen
			}
			x := g.python(options{in: g.A, cgroup: g.two}, fmt.Sprintf(made, text[0], text[1]), g.to(port), service)
			child := x.read("pid")
			g.move(child, g.inner)
			g.must("set", "--pid", child, "--up", "5MB/s")
			g.egressOn("before", g.daemons[0], g.inner, false)
			x.tell("pass")
			x.read("passed")
			if name == "listening" {
				y := g.python(options{in: g.B}, `
s = socket.socket()
host, port = sys.argv[1].rsplit(":", 1)
s.bind((host, int(port)))
host, port = sys.argv[2].rsplit(":", 1)
s.connect((host, int(port)))
s.recv(1)
say("begins")
while s.recv(1 << 16): pass
`, g.to(port), service)
				y.read("begins")
			} else {
				g.begins(port)
			}
			g.holds("a socket from elsewhere", testbed.Now().Add(100*time.Millisecond), 5e6, port)
			g.egressOn("a socket from elsewhere", g.daemons[0], g.x, true)
		})
	}
}

// Without a daemon the attachment does not move. The rate holds all the same, no flow stalls, and the next daemon
// makes up for it.
func TestEgressOutlivesDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/enforce/pacing TestEgressWithoutDaemon")
	t.Parallel()
	s := newStage(t)
	before := ours(t)
	g := newCgroupTree(s)
	first := s.daemon()
	x, a := g.opener(g.inner)
	open(x)
	at := g.set(x, "5MB/s")
	g.holds("with a daemon", at, 5e6, a)
	made := objectsOf(t, first.cmd.Process.Pid)
	first.kill()
	g.holds("without", testbed.Now(), 5e6, a)

	second := s.daemon()
	g.egressOn("adopted", second, g.inner, true)
	second.kill()
	g.move(x.pid(), g.y)
	open(x)
	g.holds("moved without a daemon", open(x), 5e6, a)

	third := s.daemon()
	g.egressOn("adopted from elsewhere", third, cgroupMount(), true)
	g.holds("adopted from elsewhere", testbed.Now(), 5e6, a)
	for o := range objectsOf(t, third.cmd.Process.Pid) {
		made[o] = true
	}
	s.must("down")
	<-third.ended
	s.leaves(made, before)
}

// A socket with a rate of its own may be in any cgroup.
func TestEgressForSocketOption(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEgressFollows and TestSocketOption")
	t.Parallel()
	alone(t)
	g := newCgroupTree(upStage(t))
	d := g.daemons[0]
	x, _ := g.opener(g.one)
	g.set(x, "5MB/s")
	g.egressOn("a process", d, g.one, false)
	g.ports++
	y := g.python(options{in: g.A, cgroup: g.y}, option+`
s = socket.socket()
set_rate(s, 2_000_000)
say("set")
wait()
host, port = sys.argv[1].rsplit(":", 1)
s.connect((host, int(port)))
flood(s)
`, g.to(g.ports))
	y.read("set")
	g.egressOn("a socket with a rate", d, cgroupMount(), true)
	y.tell("go")
	g.begins(g.ports)
	g.holds("a socket with a rate", testbed.Now(), 2e6, g.ports)
	y.close()
	if !eventually(8*time.Second, func() bool {
		for _, id := range egress(t, d.cmd.Process.Pid) {
			var st unix.Stat_t
			if unix.Stat(g.one, &st) == nil && id == st.Ino {
				return true
			}
		}
		return false
	}) {
		t.Error("the egress program does not come down when the socket is closed")
	}
}
