package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// A program that receives far faster than it may send stays within its limit with its acknowledgements, too. Its data
// keeps a part of the limit, and it receives as before.
func TestAcknowledgements(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestTotal and internal/daemon TestInputMeterOfTheMachine")
	t.Parallel()
	spare := newUsers()
	far := relay.RoundTrip(20 * time.Millisecond)
	far.BtoA.Rate = 40e6
	for i, tt := range []struct {
		name    string
		pair    func() *testbed.Pair
		limit   float64
		args    []string
		receive float64 // bytes/s at least
	}{
		{"total without an input meter", func() *testbed.Pair { return testutil.MustPair(t) }, 200e3, []string{"--total", "200kB/s", "--input-meter=false"}, 20e6},
		{"up", func() *testbed.Pair { return testutil.MustPair(t) }, 200e3, []string{"--up", "200kB/s"}, 20e6},
		{"up, 20 ms away", func() *testbed.Pair { return testutil.MustDistantPair(t, far) }, 100e3, []string{"--up", "100kB/s"}, 20e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newTotals(t, tt.pair(), spare+40+uint32(i), 2, "cubic")
			f.must(append([]string{"set", "--user", itoa(f.user)}, tt.args...)...)
			f.sendTo(totalPort, false, testbed.SenderConfig{Connections: 2, Congestion: "cubic"})
			if _, err := f.up.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			f.judge(testbed.Now(), 2*span, func(from, to testbed.Instant) error {
				f.until(from)
				before := f.nodes()["user:"+itoa(f.user)].Up.Bytes
				f.until(to)
				wire := float64(f.nodes()["user:"+itoa(f.user)].Up.Bytes-before) / to.Sub(from).Seconds()
				sent, received := f.both(from, to)
				t.Logf("%.3f of the limit leaves, %.3f is data, %.1f MB/s come", wire/tt.limit, sent/tt.limit, received/1e6)
				switch {
				case wire > 1.1*tt.limit:
					return fmt.Errorf("%.0f bytes/s leave", wire)
				case sent < 0.4*tt.limit:
					return fmt.Errorf("%.0f bytes/s are data", sent)
				case received < tt.receive:
					return fmt.Errorf("%.0f bytes/s come", received)
				}
				return nil
			})
		})
	}
}

// The same holds for connections that the program has closed in its own direction.
func TestAcknowledgementsHalfClosed(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestTotal and internal/daemon TestInputMeterOfTheMachine")
	t.Parallel()
	const limit = 10e3
	const server = `
s = socket.create_server(("", 5090), backlog=64)
say("ready")
while True:
    threading.Thread(target=flood, args=(s.accept()[0], bytes(1 << 16), 30e6), daemon=True).start()
`
	const client = countsRead + `
def read(c):
    global got
    while True:
        got += len(c.recv(1 << 18))
threading.Thread(target=flood, args=(connect(sys.argv[1] + ":5001"),), daemon=True).start()
for _ in range(2):
    c = connect(sys.argv[1] + ":5090")
    c.shutdown(socket.SHUT_WR)
    threading.Thread(target=read, args=(c,), daemon=True).start()
say("ready")
signal.pause()
`
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.receiver(f.B, testbed.ReceiverConfig{})
	f.python(options{in: f.B}, server).read("ready")
	user := newUsers()
	f.must("set", "--user", itoa(user), "--up", "10kB/s")
	c := f.python(options{in: f.A, uid: user}, client, f.B4.String())
	c.read("ready")
	time.Sleep(2 * time.Second)
	f.judge(testbed.Now(), 2*span, func(from, to testbed.Instant) error {
		f.until(from)
		before := f.nodes()["user:"+itoa(user)].Up.Bytes
		came, began := c.got()
		f.until(to)
		after := f.nodes()["user:"+itoa(user)].Up.Bytes
		all, ended := c.got()
		wire, received := float64(after-before)/(ended-began), (all-came)/(ended-began)
		t.Logf("%.3f of the limit leaves, %.1f MB/s come", wire/limit, received/1e6)
		if wire > 1.1*limit || received < 20e6 {
			return fmt.Errorf("%.0f bytes/s leave, %.0f come", wire, received)
		}
		return nil
	})
}

// Downloads beside an upload that fills a low limit take as long as without a limit: their few acknowledgements are not
// left out.
func TestAcknowledgementsOfDownloads(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestTotal and internal/daemon TestInputMeterOfTheMachine")
	t.Parallel()
	const server = `
s = socket.create_server(("", 5090), backlog=64)
say("ready")
def serve(c):
    try:
        c.sendall(bytes(int(c.recv(100))))
        c.close()
    except OSError:
        pass
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`
	const client = `
peer, size = sys.argv[1], int(sys.argv[2])
def download():
    begin = time.monotonic()
    s = connect(peer + ":5090")
    s.sendall(str(size).encode())
    left = size
    while left > 0:
        left -= len(s.recv(1 << 16))
    return time.monotonic() - begin
def median():
    return sorted(download() for _ in range(9))[4]
say("alone", median())
wait()
up = connect(peer + ":5001")
threading.Thread(target=flood, args=(up,), daemon=True).start()
time.sleep(2)
say("beside", median())
`
	spare := newUsers()
	for i, size := range []int{100_000, 1_000_000, 10_000_000} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond)))
			f.receiver(f.B, testbed.ReceiverConfig{})
			f.python(options{in: f.B}, server).read("ready")
			user := spare + 50 + uint32(i)
			c := f.python(options{in: f.A, uid: user}, client, f.B4.String(), itoa(uint32(size)))
			seconds := func(word string) (median float64) {
				if _, err := fmt.Sscan(c.read(word), &median); err != nil {
					t.Fatal(err)
				}
				return median
			}
			alone := seconds("alone")
			f.must("set", "--user", itoa(user), "--up", "20kB/s")
			c.tell("go")
			beside := seconds("beside")
			t.Logf("%.3f s without a limit, %.3f s with one", alone, beside)
			if beside > 1.5*alone+0.1 {
				t.Errorf("%.3f s", beside)
			}
		})
	}
}
