package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// One process makes a socket and another one only reads from it. Within some seconds the socket belongs to the
// reader. It stays the maker's as well while the maker has it open.
func TestDownPassedSockets(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	const made = `
how, port, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3]
got = 0

def read(s):
    global got
    while True:
        got += len(s.recv(65536))

def report(s):
    threading.Thread(target=read, args=(s,), daemon=True).start()
    say("reads")
    while True:
        wait()
        say("got", got, time.monotonic())

if wanted == "TCP":
    l = socket.create_server(("", port))
    say("ready")
    s, _ = l.accept()
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    s.bind(("", port))
    say("ready")
if how == "user":
    say("pid", os.getpid())
    wait()
    os.setuid(int(sys.argv[4]))
    report(s)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = os.fork()
if child == 0:
    if how == "kept":
        time.sleep(60)  # it has inherited the socket
        os._exit(0)
    s.close()
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    report(socket.socket(fileno=fds[0]))
say("pid", child)
wait()
if how == "kept":
    report(s)
socket.send_fds(ours, [b"x"], [s.fileno()])
s.close()
sys.stdin.close()
time.sleep(60)
`
	const limit, payload = 1e6, 0.97
	for _, c := range testutil.Subset([]struct{ how, protocol string }{
		{"passed", "UDP"}, {"passed", "TCP"}, {"user", "UDP"}, {"kept", "UDP"},
	}, 1, 2) {
		t.Run(c.how+"/"+c.protocol, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			f := newInbound(s, testutil.MustPair(t))
			const port = "6001"
			x := f.python(options{in: f.A}, made, c.how, port, c.protocol, fmt.Sprint(spare))
			x.read("ready")
			if c.protocol == "TCP" {
				f.python(options{in: f.B}, `
s = connect(sys.argv[1])
while True:
    s.sendall(bytes(20000))
    time.sleep(0.01)
`, fmt.Sprintf("%s:%s", f.A4, port))
			} else {
				f.python(options{in: f.B}, datagramSender, f.A4.String(), port, "1400", "2e6", "remote")
			}
			pid := x.read("pid")
			if c.how == "user" {
				f.must("set", "--user", fmt.Sprint(spare), "--down", "1MB/s")
			} else {
				f.must("set", "--pid", pid, "--down", "1MB/s")
			}
			x.tell("go on")
			x.read("reads")
			over := func(length time.Duration) float64 {
				before, from := x.got()
				time.Sleep(length)
				after, to := x.got()
				return (after - before) / (to - from)
			}
			if c.how == "kept" {
				time.Sleep(3 * time.Second)
				begin := testbed.Now()
				if got := over(2 * time.Second); got < 1.3e6 && !excused(t, begin, testbed.Now()) {
					t.Errorf("%.0f bytes/s come for the maker, whom nothing limits, of 2 MB/s", got)
				}
				return
			}
			f.assertWithin("the reader is found", 15*time.Second, func() bool { return over(500*time.Millisecond) < 1.2*limit })
			time.Sleep(2 * time.Second)
			begin := testbed.Now()
			f.near("what is read", begin, over(2*time.Second), payload*limit, 0.06)
		})
	}
}
