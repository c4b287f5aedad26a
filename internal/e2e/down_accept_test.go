package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The connections that a server accepts are limited from their first segment on. The same applies to an MPTCP listener,
// which Go programs have without a request for it.
func TestDownAccepted(t *testing.T) {
	t.Parallel()
	newInbound(newStage(t), testutil.MustPair(t)).accepts()
}

// The same applies where the sockets have no room for state: the listener's is in a table.
func TestAcceptsWithoutRoom(t *testing.T) {
	t.Parallel()
	p := testutil.MustPair(t)
	noRoom(t, p.A)
	newInbound(newStage(t), p).accepts()
}

func (f *inbound) accepts() {
	t := f.t
	t.Helper()
	pid := "pid:" + itoa(f.rx.PID())
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "64kB/s")
	for range 3 {
		x, err := testbed.StartSender(f.B, testbed.SenderConfig{To: f.A4.String() + ":5001", Connections: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
		before, begin := f.nodes()[pid].Down.Bytes, testbed.Now()
		if err := x.Connect(); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		end := testbed.Now()
		let := f.nodes()[pid].Down.Bytes - before
		f.until(end.Add(15 * time.Millisecond))
		got := f.rx.Goodput(5001, begin, end) * end.Sub(begin).Seconds()
		t.Logf("the program has received %.0f bytes, %d went through the queue", got, let)
		if got == 0 {
			t.Error("the program has received nothing")
		}
		if got > float64(let)+16e3 { // allows for bytes that came before the end of the handshake
			t.Errorf("the program has received %.0f bytes, and %d went through the queue", got, let)
		}
		if _, err := x.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// A limited process accepts connections from a listener of its parent's, which nothing limits, reads from each for half a
// second, and closes it.
func TestDownAcceptedFromAnother(t *testing.T) {
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	const limit, connections = 5e6, 8
	x := f.python(options{in: f.A}, `
import select
listener = socket.create_server(("::", 6001), family=socket.AF_INET6, dualstack_ipv6=True, backlog=100)
child = os.fork()
if child:
    say("ready", child)
    signal.pause()
listener.setblocking(False)
got = 0
def serve():
    global got
    ends = {}
    while True:
        for s in select.select([listener, *ends], [], [], 0.05)[0]:
            try:
                if s is listener:
                    ends[s.accept()[0]] = time.monotonic() + 0.5
                else:
                    got += len(s.recv(1 << 18))
            except OSError:
                pass
        for s in [s for s, end in ends.items() if end < time.monotonic()]:
            s.close()
            del ends[s]
threading.Thread(target=serve, daemon=True).start()
while wait():
    say("got", got, time.monotonic())
`)
	pid := x.read("ready")
	f.must("set", "--pid", pid, "--down", fmt.Sprintf("%.0fB/s", limit))
	f.python(options{in: f.B}, `
def send(to):
    while True:
        try:
            with connect(to) as s:
                flood(s)
        except OSError:
            time.sleep(0.01)
for i in range(`+fmt.Sprint(connections)+`):
    threading.Thread(target=send, args=(sys.argv[1 + i % 2],), daemon=True).start()
signal.pause()
`, fmt.Sprintf("%s:6001", f.A4), fmt.Sprintf("[%s]:6001", f.A6))
	time.Sleep(2 * time.Second)
	before, from := x.got()
	time.Sleep(5 * time.Second)
	after, to := x.got()
	rate := (after - before) / (to - from)
	t.Logf("%.2f of the limit is read", rate/limit)
	// Before the first read, 16 times a second, a connection belongs to no limited program.
	if rate > 1.5*limit || rate < 0.3*limit {
		t.Errorf("%.0f bytes/s are read, want at most 1.5 of %.0f, and 0.3 at least", rate, limit)
	}
}
