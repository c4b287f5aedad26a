package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// parts checks how ports share a limit of 8 MB/s, to within 3% of it.
func (f *field) parts(what string, after testbed.Instant, want map[uint16]float64) {
	f.t.Helper()
	const limit = 8e6
	f.judge(after, 2*time.Second, func(from, to testbed.Instant) error {
		sum := 0.0
		var wrong error
		for port, part := range want {
			rate := f.rate(from, to, port)
			sum += rate
			f.t.Logf("%s: port %d has %.4f of the limit, wanted %.4f", what, port, rate/limit, part)
			if off := rate/limit - part; off > 0.03 || off < -0.03 {
				wrong = fmt.Errorf("%s: port %d has %.4f of the limit, want %.4f", what, port, rate/limit, part)
			}
		}
		if wrong != nil {
			return wrong
		}
		return compare(what, sum, limit, 0.02)
	})
}

// drained waits until no packet has left for a port for 40 ms, and returns the instant of the last one: the data in
// a program's sockets still leave.
func (f *field) drained(port uint16) testbed.Instant {
	f.t.Helper()
	const quiet = 40 * time.Millisecond
	for deadline := testbed.Now().Add(10 * time.Second); testbed.Now().Sub(deadline) < 0; {
		from := testbed.Now()
		if f.rate(from, from.Add(quiet), port) == 0 {
			return from
		}
	}
	f.t.Fatalf("port %d is sent to after 10 s", port)
	return 0
}

// Running programs share a limit, each with its children and whatever number of connections, also by weight. Other
// programs join. The others get the part that one leaves, and all are free again when the group ends.
func TestFair(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.send(testbed.SenderConfig{})
	b := f.send(testbed.SenderConfig{Connections: 16})
	c1 := f.ports + 1
	c2 := c1 + 1
	f.ports += 2
	c := f.python(options{in: f.A}, `
if os.fork() == 0:
    flood(connect(sys.argv[2]))
s = connect(sys.argv[1])
say("ready")
flood(s)
`, f.to(c1), f.to(c2))
	c.read("ready")
	at := f.must("fair", "--group", "three", "--up", "8MB/s", a.pid(), b.pid(), c.pid())
	third := 1.0 / 3
	f.parts("equal, the third with a child", at.Add(1200*time.Millisecond),
		map[uint16]float64{a.port: third, b.port: third, c1: third / 2, c2: third / 2})

	at = f.must("fair", "--group", "three", a.pid()+"=300", b.pid()+"=50", c.pid()+"=50")
	f.parts("by weight", at.Add(500*time.Millisecond),
		map[uint16]float64{a.port: 0.75, b.port: 0.125, c1: 0.0625, c2: 0.0625})

	d := f.send(testbed.SenderConfig{Connections: 4})
	f.free("who is not in it", testbed.Now(), 20e6, d.port)
	at = f.must("fair", "--group", "three", d.pid()+"=100")
	f.parts("one more", at.Add(500*time.Millisecond),
		map[uint16]float64{a.port: 0.6, b.port: 0.1, c1: 0.05, c2: 0.05, d.port: 0.2})
	if n := f.nodes()["pid:"+d.pid()]; n.Group != "three" || n.Parent != f.nodes()["group:three"].ID {
		t.Errorf("a member is shown as %+v", n)
	}
	f.refused(f.netnice("fair", "--up", "1MB/s", d.pid()), "is in group:three already", "netnice fair")

	// The leaving program gets the limit around the group, with its child and in the middle of its transfers. The
	// others get its part.
	f.must("set", "--pid", d.pid(), "--up", "3MB/s")
	at = f.must("fair", "--leave", c.pid(), d.pid())
	f.parts("two have left", at.Add(500*time.Millisecond), map[uint16]float64{a.port: 6.0 / 7, b.port: 1.0 / 7})
	f.holds("has left, with a limit of its own", at.Add(200*time.Millisecond), 3e6, d.port)
	f.free("has left, and its child", at.Add(200*time.Millisecond), 20e6, c1, c2)
	f.refused(f.netnice("fair", "--leave", c.pid()), "is no member of a group", "netnice ls")
	f.must("set", "--pid", d.pid(), "--up", "none")
	at = f.must("fair", "--group", "three", c.pid()+"=50", d.pid()+"=100")
	f.parts("both are back", at.Add(500*time.Millisecond),
		map[uint16]float64{a.port: 0.6, b.port: 0.1, c1: 0.05, c2: 0.05, d.port: 0.2})

	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	f.parts("the largest has ended", f.drained(a.port).Add(300*time.Millisecond),
		map[uint16]float64{b.port: 0.25, c1: 0.125, c2: 0.125, d.port: 0.5})
	f.free("dissolved", f.must("unset", "--group", "three"), 50e6, b.port, d.port)
	for subject, n := range f.nodes() {
		if n.Group != "" {
			t.Errorf("%s is in a group still", subject)
		}
	}
}
