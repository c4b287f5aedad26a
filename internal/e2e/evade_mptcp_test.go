package e2e

import (
	"os"
	"slices"
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// A process outside of the limit has made an MPTCP connection and still has it open. The connection's traffic counts
// for the process that sends it.
func TestEvadeByOthersMPTCP(t *testing.T) {
	evade(t, nil, append(slices.Clone(othersMPTCP), escape{
		// When a reading call ends, the kernel sends data in it that an earlier sending call had to leave.
		name: "its maker reads from it", text: mptcpPasser + `
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("", 8080))
listener.listen()
child = os.fork()
if child == 0:
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    flood(socket.socket(fileno=fds[0]))
ready(child)
s, _ = listener.accept()
socket.send_fds(ours, [b"x"], [s.fileno()])
while s.recv(100):
    pass
`, against: `
host, port = sys.argv[1].rsplit(":", 1)
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.connect((host, int(port)))
def send():
    while True:
        s.send(bytes(1000))
        time.sleep(0.0003)
threading.Thread(target=send, daemon=True).start()
while s.recv(1 << 20):
    pass
`,
	}))
}

// The same attempts run against a peer that speaks plain TCP.
func TestEvadeByOthersMPTCPToTCP(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeByOthersMPTCP")
	evade(t, func(f *field) {
		f.t.Helper()
		if err := f.B.Do(func() error {
			return os.WriteFile("/proc/sys/net/mptcp/enabled", []byte("0"), 0o644)
		}); err != nil {
			f.t.Fatal(err)
		}
	}, othersMPTCP)
}

// othersMPTCP holds programs with a limited child.
var othersMPTCP = []escape{
	{name: "inherited", text: mptcpPasser + `
s = connects()
child = os.fork()
if child == 0:
    theirs.recv(1)
    flood(s)
ready(child)
ours.send(b"x")
signal.pause()
`},
	{name: "passed under the limit", text: mptcpPasser + `
child = os.fork()
if child == 0:
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    flood(socket.socket(fileno=fds[0]))
ready(child)
s = connects()
socket.send_fds(ours, [b"x"], [s.fileno()])
signal.pause()
`},
	{name: "inherited, without waiting in a call", text: mptcpPasser + `
import select
s = connects()
child = os.fork()
if child == 0:
    theirs.recv(1)
    room = select.poll()
    room.register(s, select.POLLOUT)
    while True:
        room.poll()
        try:
            s.send(bytes(65536), socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
ready(child)
ours.send(b"x")
signal.pause()
`},
	{name: "inherited, by sendfile", text: mptcpPasser + `
s = connects()
child = os.fork()
if child == 0:
    theirs.recv(1)
    with open("/proc/self/exe", "rb") as file:
        while True:
            os.sendfile(s.fileno(), file.fileno(), 0, 1 << 16)
ready(child)
ours.send(b"x")
signal.pause()
`},
}

const mptcpPasser = `
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
def connects():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    s.connect(there)
    s.send(b"x")
    return s
`
