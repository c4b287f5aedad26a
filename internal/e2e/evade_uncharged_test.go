package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Traffic is charged where it leaves. The cases lack the callback that paces TCP, use a socket that first sent to
// this machine, or have a connection that is only requested.
func TestEvadeUncharged(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeByConnecting and TestGenerated")
	evade(t, nil, []escape{
		// Acknowledgements of both TCP and MPTCP, and the timestamp, fill the options of each segment.
		{name: "MPTCP in both directions", limits: []limited{limitedProcess, limitedUser}, least: 0.7, text: mptcpServer, against: `
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
		// Selective acknowledgements fill the rest of a segment's options next to the timestamp.
		{name: "three holes in what it receives", limits: []limited{limitedProcess, limitedUser}, least: 0.7, counted: "TCPOFOQueue", text: `
ready()
floods(to=there)
`, against: `
sees = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(0x0800))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def checksum(data):
    n = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
def answer(p, behind):
    ihl = (p[0] & 15) * 4
    to, at, seq, ack = struct.unpack("!HHII", p[ihl:ihl + 12])
    stamp, echo = struct.unpack("!II", p[ihl + 24:ihl + 32])  # behind two bytes of padding, and kind and length
    tcp = struct.pack("!HHIIBBHHH", at, to, (ack + behind) & 0xffffffff, seq, 8 << 4, 0x10, 0xffff, 0, 0) + struct.pack("!BBBBII", 1, 1, 8, 10, (echo + 1000) & 0xffffffff, stamp)
    data = b"xx"
    pseudo = p[16:20] + p[12:16] + struct.pack("!BBH", 0, 6, len(tcp) + len(data))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp + data)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp) + len(data), 0, 0, 64, 6, 0, p[16:20], p[12:16])
    raw.sendto(ip + tcp + data, (socket.inet_ntoa(p[12:16]), 0))
seen = set()
while True:
    p = sees.recv(65535)
    ihl = (p[0] & 15) * 4
    header = p[ihl:ihl + 32]
    if p[9] != 6 or len(p) < ihl + 100 or header[2:4] != struct.pack("!H", ` + strconv.Itoa(testbed.DefaultPort) + `) or header[20:24] != bytes([1, 1, 8, 10]) or header[:2] in seen:
        continue
    seen.add(header[:2])
    for behind in 2000, 4000, 6000:
        answer(p, behind)
`},
		{name: "on this machine first", limits: []limited{limitedProcess, limitedUser, limitedUserBoth, limitedCgroupBoth}, least: 0.85, text: disconnect + `
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
		{name: "a listener that was connected on this machine", limits: []limited{limitedProcess, limitedUser, limitedUserBoth, limitedCgroupBoth}, least: 0.85, text: disconnect + `
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

// A program only requests connections and closes each at once. It may send a second's worth of SYNs at most beyond
// the limit, since TCP repeats them.
func TestEvadeByConnecting(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	const limit = 100e3
	for _, on := range testutil.Subset([]limited{limitedProcess, limitedUser}, 1) {
		f.connects(on, limit)
	}
}

// connects runs such a program with a limit on it or its user.
func (f *field) connects(on limited, rate float64) {
	f.t.Helper()
	uid := newUsers()
	x := f.python(options{in: f.A, uid: uid}, evader+`
ready()
def some():
    while True:
        with socket.socket() as s:
            s.setblocking(False)
            s.connect_ex((there[0], 9))
def several():
    threads(2, some)
processes(2, several)
`, f.to(testbed.DefaultPort), f.to(testbed.DefaultPort))
	x.read("ready")
	limit, subject := on.limit(x.pid(), uid, "", rate)
	f.must(append([]string{"set"}, limit...)...)
	begin := f.wire()
	x.tell("go")
	x.read("going")
	f.t.Log("limit on the " + string(on))
	f.contained(escape{ahead: time.Second, subject: subject}, begin, rate)
	x.close()
	<-x.ended
}

// One socket for each datagram gets the same limit as one socket for all, also while a queue exists elsewhere.
func TestEvadeBySocketsOfOneDatagram(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDP and TestGenerated")
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
to = there6 if sys.argv[4] == "6" else there
ready()
def some():
    while True:
        with socket.socket(socket.AF_INET6 if to is there6 else socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.sendto(data, (to[0], 9))
            except OSError:
                pass
threads(2, some)
`
	for _, args := range [][]string{{"1400", "4"}, {"60000", "4"}, {"60000", "6"}} { // the last two in fragments
		for _, e := range (escape{
			name: "a socket for each datagram", least: 0.5, args: args, text: text,
			ahead:  150 * time.Millisecond, // only a drop can hold the first packet of a socket
			limits: []limited{limitedProcess, limitedUser},
		}).attempts() {
			f.t.Log(e.name)
			f.evade(e)
		}
	}
}

// disconnect makes a socket forget its peer, as connect to AF_UNSPEC does.
const disconnect = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def disconnect(s):
    if libc.connect(s.fileno(), bytes(16), 16):
        raise OSError(ctypes.get_errno(), "disconnect")
`

// A limit covers the cgroups below the limited one, however deep they are nested. A limit on a user or a process
// covers what it has there.
func TestEvadeByDepth(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	const below = 60
	group, name := cgroup(t, "deep")
	deepest := filepath.Join(group, strings.Repeat("x/", below))
	if err := os.MkdirAll(deepest, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for at := deepest; at != group; at = filepath.Dir(at) {
			if err := os.Remove(at); err != nil {
				t.Error(err)
			}
		}
	})
	for _, on := range testutil.Subset([]limited{limitedCgroup, limitedUser, limitedProcess}, 0) {
		f.floodsInDepth(on, name, deepest)
	}
}

// floodsInDepth runs a program in a nested cgroup, under a limit.
func (f *field) floodsInDepth(on limited, group, folder string) {
	f.t.Helper()
	const port = testbed.DefaultPort
	uid := newUsers()
	x := f.python(options{in: f.A, cgroup: folder, uid: uid}, evader+`
ready()
floods()
`, f.to(port), f.to(port))
	x.read("ready")
	limit, subject := on.limit(x.pid(), uid, group, evadeLimit)
	f.must(append([]string{"set"}, limit...)...)
	defer func() { _ = f.netnice(append([]string{"unset"}, limit[:2]...)...) }()
	begin := f.wire()
	x.tell("go")
	x.read("going")
	f.t.Log("limit on the " + string(on))
	f.contained(escape{subject: subject}, begin, evadeLimit)
	f.settleAccount()
	x.close()
	<-x.ended
	f.quiet()
}
