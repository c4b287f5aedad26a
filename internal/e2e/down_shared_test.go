package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Sockets of several processes share a port. An attached program gives all received packets to the socket of the
// limited process. The limit holds, whichever socket the addresses would select.
func TestDownSharedByProgram(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	f := newInbound(s, testutil.MustPair(t))
	const (
		port           = "6001"
		limit, payload = 1e6, 0.97
	)
	x := f.python(options{in: f.A}, `
import ctypes
port = int(sys.argv[1])
def member():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    s.bind(("", port))
    return s
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = os.fork()
if child == 0:
    s = member()  # the first
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # return 0
    s.setsockopt(socket.SOL_SOCKET, 51, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))  # SO_ATTACH_REUSEPORT_CBPF
    theirs.send(b"x")
    got = 0
    def read():
        global got
        while True:
            got += len(s.recv(65536))
    threading.Thread(target=read, daemon=True).start()
    while True:
        wait()
        say("got", got, time.monotonic())
ours.recv(1)
others = [member() for _ in range(15)]
sys.stdin.close()
say("ready", child)
time.sleep(600)
`, port)
	child := x.read("ready")
	f.python(options{in: f.B}, `
to = sys.argv[1], int(sys.argv[2])
senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
data = bytes(1400)
while True:
    for s in senders:
        try:
            s.sendto(data, to)
        except OSError:
            pass
    time.sleep(0.03)  # 3 MB/s at most
`, f.A4.String(), port)
	over := func(length time.Duration) float64 {
		var before, from, after, to float64
		for i, at := range [][2]*float64{{&before, &from}, {&after, &to}} {
			if i > 0 {
				time.Sleep(length)
			}
			x.tell("how much")
			if _, err := fmt.Sscan(x.read("got"), at[0], at[1]); err != nil {
				t.Fatal(err)
			}
		}
		return (after - before) / (to - from)
	}
	f.assertWithin("datagrams come", 5*time.Second, func() bool { return over(200*time.Millisecond) > 1.5*limit })
	f.must("set", "--pid", child, "--down", "1MB/s")
	f.assertWithin("the limit holds", 5*time.Second, func() bool { return over(500*time.Millisecond) < 1.2*limit })
	begin := testbed.Now()
	f.near("what is read", begin, over(2*time.Second), payload*limit, 0.06)
	f.must("unset", "--pid", child)
	f.assertWithin("the limit has gone", 5*time.Second, func() bool { return over(500*time.Millisecond) > 1.5*limit })
}
