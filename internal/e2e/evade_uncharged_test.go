package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// What leaves is charged where it leaves: without the callback by which TCP is paced, by a
// socket that was for this machine before, and with a connection that is only asked for.
func TestEvadeUncharged(t *testing.T) {
	evade(t, nil, []escape{
		// Acknowledgements of both TCP and MPTCP, and the time, fill the options of each segment.
		{name: "MPTCP in both directions", least: 0.7, text: mptcpServer, against: `
host, port = sys.argv[1].rsplit(":", 1)
def some():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as s:
        s.connect((host, int(port)))
        def send():
            while True:
                s.send(b"x")
                time.sleep(0.01)
        threading.Thread(target=send, daemon=True).start()
        while s.recv(1 << 20):
            pass
for _ in range(8):
    threading.Thread(target=some, daemon=True).start()
signal.pause()
`},
		{name: "on this machine first", text: disconnect + `
here = socket.create_server(("127.0.0.1", 0), backlog=128)
ready()
def some():
    with socket.socket() as s:
        s.connect(here.getsockname())
        disconnect(s)
        s.connect(there)
        flood(s)
threads(4, some)
`},
		{name: "a listener that was connected on this machine", text: disconnect + `
here = socket.create_server(("127.0.0.1", 0), backlog=128)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.connect(here.getsockname())
disconnect(s)
s.bind(("", 8080))
s.listen()
ready()
while True:
    c, _ = s.accept()
    threading.Thread(target=flood, args=(c,), daemon=True).start()
`, against: `
host, port = sys.argv[1].rsplit(":", 1)
def some():
    with socket.create_connection((host, int(port))) as s:
        while s.recv(1 << 20):
            pass
for _ in range(4):
    threading.Thread(target=some, daemon=True).start()
signal.pause()
`},
	})
}

// Who only asks for connections, and takes each back, has a second's worth of SYNs at most beside the
// limit: TCP asks again.
func TestEvadeByConnecting(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	const limit = 100e3
	x := f.python(options{in: f.A}, evader+`
ready()
def some():
    while True:
        with socket.socket() as s:
            s.setblocking(False)
            s.connect_ex((there[0], 9))
def several():
    threads(2, some)
processes(2, several)
`, f.to(testutil.DefaultPort), f.to(testutil.DefaultPort))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "100kB/s")
	begin := f.wire()
	x.tell("go")
	x.read("going")
	f.contained(escape{ahead: time.Second, subject: "pid:" + x.pid()}, begin, limit)
}

// A socket for each datagram is limited like one for all, while there is a queue elsewhere, too.
func TestEvadeBySocketsOfOneDatagram(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	f.ports++
	queued := f.python(options{in: f.B}, udpFlood, fmt.Sprintf("%s:%d", f.A4, f.ports))
	queued.read("ready")
	f.must("set", "--pid", queued.pid(), "--up", "1MB/s")
	time.Sleep(settle)
	const text = `
data = bytes(int(sys.argv[3]))
ready()
def some():
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.sendto(data, (there[0], 9))
            except OSError:
                pass
threads(2, some)
`
	for _, size := range []int{1400, 60000} {
		f.evade(escape{
			name: "a socket for each datagram", least: 0.5, args: []string{itoa(size)}, text: text,
			ahead: 150 * time.Millisecond, // nothing can hold the first packet of a socket but a drop
		})
	}
}

// disconnect lets a socket forget its peer, as connect to AF_UNSPEC does.
const disconnect = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def disconnect(s):
    if libc.connect(s.fileno(), bytes(16), 16):
        raise OSError(ctypes.get_errno(), "disconnect")
`

// However far below the limited cgroup somebody makes others, it limits what is there.
func TestEvadeByDepth(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	const below, port = 60, testutil.DefaultPort
	limited, name := cgroup(t, "deep")
	deepest := filepath.Join(limited, strings.Repeat("x/", below))
	if err := os.MkdirAll(deepest, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for at := deepest; at != limited; at = filepath.Dir(at) {
			if err := os.Remove(at); err != nil {
				t.Error(err)
			}
		}
	})
	f.must("set", "--cgroup", name, "--up", "3MB/s")
	x := f.python(options{in: f.A, cgroup: deepest}, evader+`
ready()
floods()
`, f.to(port), f.to(port))
	x.read("ready")
	begin := f.wire()
	x.tell("go")
	x.read("going")
	f.contained(escape{}, begin, evadeLimit)
	x.close()
	<-x.ended
}

// A socket whose memory for options is full before the limit has no room for its state. What holds for it is known
// elsewhere.
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

// The same of all sockets, where the administrator gives them next to no memory for options.
func TestEvadeWithoutRoom(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState")
	evade(t, func(f *field) {
		if err := f.A.Sysctl("net/core/optmem_max", "256"); err != nil {
			t.Fatal(err)
		}
	}, []escape{
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

// Of a socket without state TCP tries by its own timers, a chunk at once. That is of four.
const withoutState = 4 * 65536

// filled makes a socket that has keys for so many made-up peers that its memory for options is full.
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

// What such sockets receive is limited as well.
func TestReceivesWithoutRoom(t *testing.T) {
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPairInOrder(t))
	if err := f.A.Sysctl("net/core/optmem_max", "256"); err != nil {
		t.Fatal(err)
	}
	f.within = 0.15 // no window follows the limit: the queue fills, and is emptied by drops
	subject := "pid:" + itoa(f.rx.PID())
	f.sendTo(5001, false, testutil.SenderConfig{Connections: 2, UpToBytesPerSec: 50e6})
	time.Sleep(500 * time.Millisecond)
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
	f.sendTo(5001, true, testutil.SenderConfig{Connections: 2, UpToBytesPerSec: 50e6})
	time.Sleep(3 * time.Second) // windows that were promised before
	f.receives("of sockets with no room for state", testutil.Now(), 5e6, perByte, 5001)
	if got := f.letThrough(subject); got < 4.8e6 || got > 5.1e6 {
		t.Errorf("%s: %.0f bytes/s were let through, want 5000000", subject, got)
	}
}

// Who uses more sockets without state than there is room to note has those of the same cgroup stopped whose options take
// memory: they may be forgotten ones. Nobody else has.
func TestEvadeByForgottenState(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeWithoutState")
	t.Parallel()
	f := newField(upStage(t))
	if err := f.A.Sysctl("net/core/optmem_max", "256"); err != nil {
		t.Fatal(err)
	}
	const filtered = `
import ctypes
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffff))
host, port = sys.argv[1].rsplit(":", 1)
def sends():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        try:
            s.sendto(b"x", (host, 9))
        except OSError:
            return "no"
    return "yes"
say("ready")
while wait():
    say(sends())
`
	inside, _ := cgroup(t, "forgets")
	near := f.python(options{in: f.A, cgroup: inside}, filtered, f.to(9))
	far := f.python(options{in: f.A}, filtered, f.to(9))
	near.read("ready")
	far.read("ready")
	x := f.python(options{in: f.A, cgroup: inside}, `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
host, port = sys.argv[1].rsplit(":", 1)
say("ready")
wait()
ss = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3000)]
for s in ss:
    s.sendto(b"x", (host, 9))
say("done")
wait()
`, f.to(9))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "10MB/s")
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
	for _, p := range []*script{near, far, x} {
		p.close()
		<-p.ended
	}
}
