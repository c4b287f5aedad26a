package e2e

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A socket whose memory for options is full before the limit has no room for its state. netnice then keeps the state
// of its limit in a table.
func TestEvadeWithoutState(t *testing.T) {
	evade(t, nil, []escape{
		{name: "TCP", least: 0.1, bursts: withoutState, text: filled + `
ss = [full() for _ in range(4)]
ready()
for s in ss:
    s.connect(there)
threads(4, lambda: flood(ss.pop()))
`},
		{name: "TCP, connected before", least: 0.1, bursts: withoutState, text: filled + `
ss = [full() for _ in range(4)]
for s in ss:
    s.connect(there)
ready()
threads(4, lambda: flood(ss.pop()))
`},
	})
}

// The same applies to all sockets, where the administrator gives them next to no memory for options.
func TestEvadeWithoutRoom(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState")
	evade(t, (*field).noRoom, []escape{
		{name: "UDP", least: 0.5, text: `
ready()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((there[0], 9))
while True:
    try:
        s.send(bytes(1400))
    except OSError:
        pass
`},
		{name: "large datagrams", least: 0.5, text: `
ready()
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
while True:
    try:
        s.sendto(bytes(60000), (there6[0], 9))
    except OSError:
        pass
`},
		{name: "TCP", least: 0.1, bursts: withoutState, text: `
ready()
floods()
`},
		{name: "MPTCP", least: 0.1, bursts: withoutState, text: `
ready()
floods(protocol=262)
`},
		{name: "IPv6", least: 0.1, bursts: withoutState, text: `
ready()
floods(to=there6)
`},
	})
}

// TCP sends by its own timers, a chunk at once, from a socket without state. The bound covers four sockets.
const withoutState = 4 * 65536

// filled makes a socket with keys for so many invented peers that its memory for options is full.
const filled = `
import errno
def full():
    s = socket.socket()
    for peer in range(1 << 16):
        addr = struct.pack("!HH4s120x", 0, 0, struct.pack("!I", 0x0a800000 + peer))
        addr = struct.pack("H", socket.AF_INET) + addr[2:]
        try:
            s.setsockopt(socket.IPPROTO_TCP, 14, addr + struct.pack("BBHI", 0, 0, 80, 0) + bytes(80))
        except OSError as e:
            if e.errno == errno.ENOMEM:
                return s
            raise
    raise SystemExit("there is always room for another key")
`

// Traffic that such sockets receive is limited as well.
func TestReceivesWithoutRoom(t *testing.T) {
	t.Parallel()
	p := testutil.MustPairInOrder(t)
	noRoom(t, p.A) // before the listeners: see noRoom
	f := newInbound(newStage(t), p)
	f.tolerance = 0.25 // no window follows the limit: the queue fills, and drops empty it
	subject := "pid:" + itoa(f.rx.PID())
	f.sendTo(5001, false, testbed.SenderConfig{Connections: 2, UpToBytesPerSec: 50e6})
	time.Sleep(500 * time.Millisecond)
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
	f.sendTo(5001, true, testbed.SenderConfig{Connections: 2, UpToBytesPerSec: 50e6})
	time.Sleep(3 * time.Second) // windows that TCP announced before
	f.receives("of sockets with no room for state", testbed.Now(), 5e6, perByte, 5001)
	if got := f.letThrough(subject); got < 4.8e6 || got > 5.1e6 {
		t.Errorf("%s: %.0f bytes/s were let through, want 5000000", subject, got)
	}
}

// What a listener without room has accepted is limited also if the listener is closed before anything comes, and the
// program only reads.
func TestAcceptsWithoutRoomAndCloses(t *testing.T) {
	t.Parallel()
	p := testutil.MustPair(t)
	noRoom(t, p.A)
	f := newInbound(newStage(t), p)
	x := f.python(options{in: f.A}, `
l = socket.create_server(("", 7001))
say("ready")
c, _ = l.accept()
l.close()
say("accepted")
n, end = 0, time.monotonic() + 1.5
while time.monotonic() < end:
    n += len(c.recv(1 << 16))
say("received", n)
`)
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--down", "1MB/s")
	y := f.python(options{in: f.B}, `
s = connect(sys.argv[1])
say("ready")
wait()
flood(s)
`, f.A4.String()+":7001")
	y.read("ready")
	x.read("accepted")
	y.tell("go")
	got, err := strconv.ParseFloat(x.read("received"), 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("received %.0f bytes in 1.5 s", got)
	if got < 0.5e6 || got > 1.8e6 {
		t.Errorf("received %.0f bytes in 1.5 s of a limit of 1 MB/s", got)
	}
	y.close()
}

// A user has more sockets without state of their own than the table has entries. netnice then stops those sockets of
// that user whose state the table may have dropped. It stops no socket of another user. The next daemon
// limits the sockets that are still in the table.
func TestEvadeByForgottenState(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState")
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	first := s.daemon()
	f := newField(s)
	f.segmented()
	f.noRoom()
	const filtered = `
host, port = sys.argv[1].rsplit(":", 1)
def sends():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        attach_filter(s)
        try:
            s.sendto(b"x", (host, 9))
        except OSError:
            return "no"
    return "yes"
say("ready")
while wait():
    say(sends())
`
	// The table holds 4,096 sockets.
	const count = 6000
	near := f.python(options{in: f.A, uid: spare + 8}, filtered, f.to(9))
	far := f.python(options{in: f.A, uid: spare + 9}, filtered, f.to(9))
	near.read("ready")
	far.read("ready")
	x := f.python(options{in: f.A, uid: spare + 8}, `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
to = (sys.argv[1].rsplit(":", 1)[0], 9)
say("ready")
wait()
ss = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sys.argv[2]))]
for s in ss:
    try:
        s.sendto(b"x", to)
    except OSError:
        pass
say("done")
wait()
threading.Thread(target=lambda: (wait(), os._exit(0)), daemon=True).start()
while True:
    for s in ss:
        try:
            s.sendto(bytes(1400), to)
        except OSError:
            pass
`, f.to(9), itoa(count))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "3MB/s")
	for _, p := range []*script{near, far} {
		p.tell("go")
		p.read("yes")
	}
	x.tell("go")
	x.read("done")
	near.tell("go")
	near.read("no")
	far.tell("go")
	far.read("yes")
	first.kill()
	s.daemon()
	begin := f.wire()
	x.tell("go")
	f.contained(escape{least: 0.5, subject: "pid:" + x.pid()}, begin, evadeLimit)
	for _, p := range []*script{near, far, x} {
		p.close()
		<-p.ended
	}
}

// The table of sockets without state is there for the next daemon's programs.
func TestWithoutRoomOutlivesDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState")
	t.Parallel()
	s := newStage(t)
	first := s.daemon()
	f := newField(s)
	f.segmented()
	f.noRoom()
	x := f.python(options{in: f.A}, evader+`
s = socket.create_connection(there)
ready()
flood(s)
`, f.to(testbed.DefaultPort), f.to(testbed.DefaultPort))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "3MB/s")
	x.tell("go")
	x.read("going")
	time.Sleep(settle)
	first.kill()
	s.daemon()
	f.contained(escape{least: 0.1, bursts: withoutState, subject: "pid:" + x.pid()}, f.wire(), evadeLimit)
	f.saysNoRoom(x.pid())
	x.close()
}

// saysNoRoom checks that ls, why and set say of a process with one such socket that it is limited as a whole, and that
// the remedy helps.
func (f *field) saysNoRoom(pid string) {
	f.t.Helper()
	subject, count := "pid:"+pid, func() int { return f.nodes()["pid:"+pid].StatelessSockets }
	if n := count(); n != 1 {
		f.t.Errorf("ls counts %d sockets without room for state, want 1", n)
	}
	if r := f.netnice("ls"); !strings.Contains(r.out, subject+" limited as a whole: 1 socket without room for state, see netnice why "+pid) {
		f.t.Error(r)
	}
	r := f.netnice("why", pid)
	for _, text := range []string{
		"1 socket under limits, 0 of them bound by one\n", " > " + f.to(testbed.DefaultPort) + ", fd ", "limited as a whole, as it has no room for state",
		"sudo nsenter -t " + pid + " -n sysctl -w net.core.optmem_max=131072 ",
	} {
		if !strings.Contains(r.out, text) {
			f.t.Errorf("%v\nwant %q", r, text)
		}
	}
	if r := f.netnice("set", "--pid", pid, "--up", "2MB/s"); r.code != 0 || !strings.Contains(r.err, "1 socket has no room for state") {
		f.t.Error(r)
	}
	if err := f.A.Sysctl("net/core/optmem_max", "131072"); err != nil {
		f.t.Fatal(err)
	}
	if !eventually(5*time.Second, func() bool { return count() == 0 }) {
		f.t.Fatal("the socket gets no state, although there is room now")
	}
	if r := f.netnice("why", pid); !strings.Contains(r.out, subject+" up binds") || strings.Contains(r.out, "no room") {
		f.t.Error(r)
	}
}

// A limit for a destination covers sockets without state, whichever call names the destination.
func TestToWithoutRoom(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState and TestSetToDestinations")
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	f.noRoom()
	for _, how := range []string{
		"s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((there[0], 9)); send = s.send",
		"s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); send = lambda data: s.sendto(data, (there[0], 9))",
		"s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255); s.setsockopt(0, 3, 0); send = lambda data: s.sendto(data, there[:1] + (0,))",
		"s = socket.create_connection(there); send = s.send",
	} {
		x := f.python(options{in: f.A}, evader+"ready()\n"+how+`
while True:
    try:
        send(bytes(1400))
    except OSError:
        pass
`, f.to(testbed.DefaultPort), f.to(testbed.DefaultPort))
		x.read("ready")
		f.must("set", "--pid", x.pid(), "--to", f.B4.String(), "--up", "3MB/s")
		begin := f.wire()
		x.tell("go")
		x.read("going")
		f.contained(escape{least: 0.1, bursts: withoutState}, begin, evadeLimit)
		x.close()
	}
}

// A limit goes with the program, not with a socket without state that the program passes on.
func TestPassedWithoutRoom(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState and TestDescriptorPassing")
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	f.noRoom()
	x := f.python(options{in: f.A}, `
ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    theirs.recv(1)
    s = connect(sys.argv[1])
    s.send(b"x")
    socket.send_fds(theirs, [b"x"], [s.fileno()])
    signal.pause()
say("ready", child)
wait()
ours.send(b"x")
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
s = socket.socket(fileno=fds[0])
say("going")
flood(s)
`, f.to(testbed.DefaultPort))
	f.must("set", "--pid", x.read("ready"), "--up", "1MB/s")
	x.tell("go")
	x.read("going")
	time.Sleep(settle)
	begin := f.wire()
	time.Sleep(time.Second)
	if rate, _ := f.wire().since(begin); rate < 5e6 {
		t.Errorf("a program without a limit sends %.0f bytes/s by the socket of one that has 1 MB/s", rate)
	}
	x.close()
}

// noRoom gives the sockets of A next to no memory for options.
func (f *field) noRoom() {
	f.t.Helper()
	noRoom(f.t, f.A)
}

// noRoom gives the sockets of a namespace next to no memory for options. A listener that has state already, for
// instance of another test's daemon, accepts no connection from then on: the kernel has to copy the state, and cannot.
func noRoom(t *testing.T, ns *testbed.NetNS) {
	t.Helper()
	err := ns.Sysctl("net/core/optmem_max", "256")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel has no optmem_max of a namespace (before Linux 6.8)")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// netnice drops packets for such a forgotten socket, if its memory is in use.
func TestReceivesForgotten(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestReceivesWithoutRoom")
	t.Parallel()
	f := newField(upStage(t))
	f.noRoom()
	x := f.python(options{in: f.A, uid: newUsers() + 8}, `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
to = (sys.argv[1].rsplit(":", 1)[0], 9)
ss = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sys.argv[2]))]
attach_filter(ss[0])  # fills the little memory that it has
ss[0].bind(("0.0.0.0", 6001))
ss[0].settimeout(0.1)
def received(seconds):
    n, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            n += len(ss[0].recv(2048))
        except TimeoutError:
            pass
    return n
say("came", received(1.5))
wait()
for s in ss:
    try:
        s.sendto(b"x", to)
    except OSError:
        pass
received(0.5) # what its queue held
say("came", received(3) / 2) # no look renews the mark of its port
wait()
say("came", received(1.5))
`, f.to(9), "6000")
	f.python(options{in: f.B}, datagramSender, f.A4.String(), "6001", "1400", "5e6", "remote")
	got := func() float64 {
		t.Helper()
		n, err := strconv.ParseFloat(x.read("came"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n / 1.5
	}
	if n := got(); n < 3e6 {
		t.Fatalf("without a limit %.0f of 5000000 bytes/s came", n)
	}
	f.must("set", "--pid", x.pid(), "--down", "1MB/s")
	time.Sleep(2 * time.Second) // the first limit on ingress
	x.tell("go")
	if n := got(); n > 1.1e6 {
		t.Errorf("%.0f bytes/s came in by a socket that was forgotten, want 1000000 at most", n)
	}
	f.must("unset", "--pid", x.pid())
	x.tell("go")
	if n := got(); n < 3e6 {
		t.Errorf("lifted: %.0f of 5000000 bytes/s came", n)
	}
}
