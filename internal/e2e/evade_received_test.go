package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// A program receives no more than its limit lets through, however its sockets get their ports, its peers open their
// connections or write their packets.
func TestEvadeReceived(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownUDP and TestGeneratedReceiving")
	t.Parallel()
	const serve = countsRead + `
l = socket.socket(socket.AF_INET6)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if %d:
    l.setsockopt(socket.IPPROTO_TCP, 9, 5)  # TCP_DEFER_ACCEPT
l.bind(("::", 6000))
l.listen(1000)
say("ready")
def read():
    global got
    while True:
        try:
            c, _ = l.accept()
            c.settimeout(0.5)
            with c:
                while True:
                    data = c.recv(1 << 16)
                    if not data:
                        break
                    got += len(data)
        except OSError:
            pass
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
signal.pause()
`
	const ask = `
def go():
    while True:
        try:
            with socket.socket(socket.AF_INET) as s:
                s.settimeout(3)
                if %d:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                s.connect((sys.argv[1], 6000))
                s.sendall(bytes(1300))
        except OSError:
            time.sleep(0.01)
for _ in range(30):
    threading.Thread(target=go, daemon=True).start()
signal.pause()
`
	const read6 = countsRead + `
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("::", 6000))
say("ready")
while True:
    got += len(s.recv(1 << 16))
`
	const chain = `
n, data = %d, bytes(800)
source, to = socket.inet_pton(socket.AF_INET6, sys.argv[3]), socket.inet_pton(socket.AF_INET6, sys.argv[2])
size = 8 + len(data)
udp = struct.pack("!HHHH", 7777, 6000, size, 0) + data
udp = udp[:6] + struct.pack("!H", checksum(source + to + struct.pack("!II", size, 17) + udp) or 0xffff) + data
body = b"".join(bytes((60 if i < n - 1 else 17, 0, 1, 4, 0, 0, 0, 0)) for i in range(n)) + udp
packet = struct.pack("!IHBB", 0x60000000, len(body), 60 if n else 17, 64) + source + to + body
s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
due = time.monotonic()
while True:
    for _ in range(10):
        try:
            s.sendto(packet, (sys.argv[2], 0))
        except OSError:
            pass
    due = max(due + 10 * len(packet) / 10e6, time.monotonic() - 0.01)
    time.sleep(max(0, due - time.monotonic()))
`
	// A new socket each 0.3 s gets its port without that it sends anything; another one tells the peer.
	const unbound = countsRead + `
import select
tell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
tell.bind(("", 6001))
say("ready")
while True:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setblocking(False)
    if %d:
        s.connect((sys.argv[1], 7777))
    else:
        try:
            s.sendto(bytes(70000), (sys.argv[1], 7777))
        except OSError:
            pass
    tell.sendto(str(s.getsockname()[1]).encode(), (sys.argv[1], 7778))
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        if select.select([s], [], [], 0.05)[0]:
            try:
                while True:
                    got += len(s.recv(1 << 16))
            except OSError:
                pass
    s.close()
`
	const flood = `
told = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
told.bind(("", 7778))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7777))
port = int(told.recv(100))
told.setblocking(False)
while True:
    try:
        port = int(told.recv(100))
    except OSError:
        pass
    for _ in range(10):
        try:
            s.sendto(bytes(1200), (sys.argv[1], port))
        except OSError:
            pass
    time.sleep(0.001)
`
	// A child of the program has a further limit. Both send by the socket in turns, so that it is now the one's, now the
	// other's while packets wait.
	const turns = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(("", 6000))
def touch(after):
    time.sleep(after)
    while True:
        s.sendto(b"x", (sys.argv[1], 9))
        time.sleep(0.01)
child = os.fork()
if not child:
    touch(0)
` + countsRead + `
subprocess.run([sys.argv[2], "set", "--pid", str(child), "--down", "30MB/s"], check=True, capture_output=True)
threading.Thread(target=touch, args=(0.005,), daemon=True).start()
say("ready")
while True:
    got += len(s.recv(1 << 16))
`
	const fast = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood(type("", (), {"sendall": lambda _, data: s.sendto(data, (sys.argv[1], 6000))})(), bytes(1400), 60e6)
`
	for _, tt := range []struct {
		name, receive, send string
		least, most         float64
	}{
		{"the first data ends the handshake, deferred accept", fmt.Sprintf(serve, 1), fmt.Sprintf(ask, 0), 0.3, 1.1},
		{"the first data ends the handshake, by the client", fmt.Sprintf(serve, 0), fmt.Sprintf(ask, 1), 0.3, 1.1},
		{"3 extension headers", read6, fmt.Sprintf(chain, 3), 0.5, 1.1},
		{"4 extension headers", read6, fmt.Sprintf(chain, 4), 0.5, 1.1},
		{"9 extension headers", read6, fmt.Sprintf(chain, 9), 0.5, 1.1},
		{"63 extension headers", read6, fmt.Sprintf(chain, 63), 0.3, 1.1},
		{"66 extension headers", read6, fmt.Sprintf(chain, 66), 0, 0},
		{"a port by connect", fmt.Sprintf(unbound, 1), flood, 0.3, 1.2},
		{"what waits for the limit of a child whose socket is another's now", turns, fast, 0.5, 1.1},
		{"a port by a datagram that is refused", fmt.Sprintf(unbound, 0), flood, 0.3, 1.2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			newInbound(newStage(t), testutil.MustPair(t)).readsWithin(tt.least, tt.most, tt.receive, tt.send)
		})
	}
}

// readsWithin runs a program of a limited user that says what it has read when it is asked, and a peer that sends to it
// all that it can. What is read has to be within least and most times the limit, and charged.
func (f *inbound) readsWithin(least, most float64, receive, send string) {
	t := f.t
	t.Helper()
	const limit = 1e6
	user := newUsers()
	x := f.python(options{in: f.A, uid: user}, receive, f.B4.String(), netniceBinary)
	x.read("ready")
	f.must("set", "--user", itoa(user), "--down", fmt.Sprintf("%.0fB/s", limit))
	f.python(options{in: f.B}, send, f.A4.String(), f.A6.String(), f.B6.String(), f.B4.String())
	time.Sleep(1500 * time.Millisecond)
	before, from := x.got()
	charged := f.nodes()["user:"+itoa(user)].Down.Bytes
	time.Sleep(4 * time.Second)
	after, to := x.got()
	charged = f.nodes()["user:"+itoa(user)].Down.Bytes - charged
	rate := (after - before) / (to - from)
	t.Logf("%.2f of the limit is read, charged %.2f of it", rate/limit, float64(charged)/max(after-before, 1))
	if rate > most*limit || rate < least*limit {
		t.Errorf("%.0f bytes/s are read, want %.1f to %.1f of %.0f", rate, least, most, limit)
	}
	if float64(charged) < 0.9*(after-before) {
		t.Errorf("%.0f bytes are read, and %d charged", after-before, charged)
	}
}
