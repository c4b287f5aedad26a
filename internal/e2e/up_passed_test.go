package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Datagrams are charged to the process that sends them, also by a socket that another one has made and keeps. Here
// both have it, and send in turn.
func TestUpPassedDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDescriptorPassing and TestDownPassedSockets")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	rx := f.python(options{in: f.B}, datagramReceiver, "6001", "4")
	rx.read("ready")
	x := f.python(options{in: f.A}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)  # SO_SNDBUFFORCE
s.connect((sys.argv[1], 6001))
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

def turn(until):
    # 4 MB/s
    until.setblocking(False)
    begin, sent = time.monotonic(), 0
    while True:
        try:
            until.recv(1)
            return
        except BlockingIOError:
            pass
        if sent <= (time.monotonic() - begin) * 4e6:
            s.send(bytes(1400))
            sent += 1400
        else:
            time.sleep(0.001)

child = os.fork()
if child == 0:
    while True:
        theirs.setblocking(True)
        theirs.recv(1)
        turn(theirs)
say("pid", child)
# Whose turn it is changes with each line.
def read():
    while True:
        wait()
        go.send(b"x")
go, done = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
threading.Thread(target=read, daemon=True).start()
while True:
    done.setblocking(True)
    done.recv(1)
    ours.send(b"x")
    done.recv(1)
    ours.send(b"x")
    turn(done)
`, f.B4.String())
	child := x.read("pid")
	f.must("set", "--pid", child, "--up", "1MB/s")
	d := datagrams{f: f, rx: rx, headers: 28}
	come := func(what string, want, tolerance float64) {
		t.Helper()
		time.Sleep(1500 * time.Millisecond)
		begin := testbed.Now()
		before, from := d.ask(rx)
		time.Sleep(1500 * time.Millisecond)
		after, to := d.ask(rx)
		f.near(what, begin, (after-before)/(to-from), want, tolerance)
	}
	for range 2 {
		x.tell("child")
		come("sent by the limited one", 1e6, 0.05)
		x.tell("parent")
		come("sent by the other", 4.08e6, 0.15)
		x.tell("nobody")
	}
}
