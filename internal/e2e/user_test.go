package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// halves checks that two ports share a limit of 10 MB/s 50:50 +- 3.
func (f *field) halves(what string, after testbed.Instant, a, b uint16) {
	f.t.Helper()
	const limit = 10e6
	f.judge(after, 2*time.Second, func(from, to testbed.Instant) error {
		ra, rb := f.rate(from, to, a), f.rate(from, to, b)
		share := ra / (ra + rb)
		f.t.Logf("%s: %.3f of %.0f bytes/s, shared %.3f to %.3f", what, (ra+rb)/limit, limit, share, 1-share)
		if share < 0.47 || share > 0.53 {
			return fmt.Errorf("%s: shared %.3f to %.3f, want 0.5 +- 0.03 each", what, share, 1-share)
		}
		return compare(what, ra+rb, limit, 0.05)
	})
}

// A user's limit may be set while no process of the user runs. It covers two processes together, and gives the one
// with 16 connections the same part as the one with a single connection.
func TestUser(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUserLimitsOwnProcess and TestFair")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	name := itoa(spare)
	f.must("set", "--user", name, "--up", "10MB/s")
	time.Sleep(1200 * time.Millisecond) // a tick of the daemon has passed, and the limit stays
	if n := f.nodes()["user:"+name]; n.Processes != 0 || len(n.Limits) != 1 {
		t.Errorf("a limit on a user without processes is shown as %+v", n)
	}
	one := f.send(testbed.SenderConfig{UID: spare})
	f.holds("alone", testbed.Now().Add(100*time.Millisecond), 10e6, one.port)
	two := f.send(testbed.SenderConfig{UID: spare})
	f.halves("1 and 1 connection", testbed.Now().Add(200*time.Millisecond), one.port, two.port)
	if err := two.Grow(15); err != nil {
		t.Fatal(err)
	}
	f.halves("1 and 16 connections", testbed.Now().Add(300*time.Millisecond), one.port, two.port)
	other := f.send(testbed.SenderConfig{UID: spare + 1, Connections: 4})
	f.free("another user", testbed.Now(), freely, other.port)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	f.free("lifted", f.must("unset", "--user", name), freely, one.port, two.port)
}

// A process has its user's own limit and the administrator's. The lower one holds, in whichever order they are set
// or lifted.
func TestUserLimitsOwnProcess(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{UID: 65534, Connections: 2})
	own := func(rate string) testbed.Instant {
		t.Helper()
		if r := f.asUser("set", "--pid", x.pid(), "--up", rate); r.code != 0 {
			t.Fatalf("a user limits a process of theirs: %v", r)
		}
		return testbed.Now()
	}
	f.holds("the user's alone", own("2MB/s"), 2e6, x.port)
	f.holds("the user's is the lower one", f.must("set", "--pid", x.pid(), "--up", "4MB/s"), 2e6, x.port)
	f.holds("the administrator's is the lower one", own("8MB/s"), 4e6, x.port)
	f.holds("the administrator's is lifted", f.must("set", "--pid", x.pid(), "--up", "none"), 8e6, x.port)
}

// root is a user like others. The test is short: it limits the machine's own traffic.
func TestUserRoot(t *testing.T) {
	spare := newUsers()
	root, err := user.LookupId("0")
	if err != nil {
		t.Skipf("uid 0 has no name: %v", err)
	}
	machineAlone(t)
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{})
	y := f.send(testbed.SenderConfig{UID: spare})
	at := f.must("set", "--user", root.Username, "--up", "20MB/s")
	// Data of before, at gigabytes per second, take their receiver a while.
	calm := at.Add(settle + 200*time.Millisecond)
	f.until(calm)
	all := f.charged("user:"+root.Username, 500*time.Millisecond)
	to := testbed.Now()
	f.must("unset", "--user", "0")
	f.shares("root", at, all, f.rate(at.Add(settle), to, x.port), 20e6)
	if free := f.rate(at.Add(settle), to, y.port); free < freely {
		t.Errorf("another user than root is at %.0f bytes/s", free)
	}
}

// shares checks a limit that the machine's own traffic may also use. The charge reaches the limit, and the rate at
// the meter is a part of it.
func (f *field) shares(what string, since testbed.Instant, all, seen, limit float64) {
	f.t.Helper()
	f.near(what, since, all, limit, 0.06)
	f.t.Logf("%s: of this, the test's own traffic is %.3f", what, seen/limit)
	if seen > limit*1.05 || seen < limit/50 {
		f.t.Errorf("%s: %.0f IP bytes/s are seen under a limit of %.0f", what, seen, limit)
	}
}

// Processes in a cgroup and below it share its limit, also those that move in later.
func TestCgroup(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	dir, path := cgroup(t, "limit")
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !eventually(3*time.Second, func() bool { return os.Remove(inner) == nil }) {
			t.Errorf("the cgroup %s cannot be removed", inner)
		}
	})
	const text = `
s = connect(sys.argv[1])
flood(s)
`
	a := f.ports + 1
	b, c := a+1, a+2
	f.python(options{in: f.A, cgroup: dir}, text, f.to(a))
	f.python(options{in: f.A, cgroup: inner}, text, f.to(b))
	time.Sleep(300 * time.Millisecond)
	f.halves("cgroup", f.must("set", "--cgroup", path, "--up", "10MB/s"), a, b)
	in := f.python(options{in: f.A}, text, f.to(c))
	time.Sleep(300 * time.Millisecond)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(in.pid()), 0); err != nil {
		t.Fatal(err)
	}
	moved := testbed.Now()
	// No event reports the move to netnice: it shows at the process's next send.
	f.holds("with one that moved in", moved, 10e6, a, b, c)
	n := f.nodes()["cgroup:"+path]
	if n.Processes != 3 || n.Sockets != 3 {
		t.Errorf("%d processes with %d sockets, want 3 and 3", n.Processes, n.Sockets)
	}
	f.free("lifted", f.must("unset", "--cgroup", path), freely, a, b, c)
}

// The host's limit covers all processes together. The test is short for that reason.
func TestHost(t *testing.T) {
	machineAlone(t)
	spare := newUsers()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{UID: spare})
	y := f.send(testbed.SenderConfig{})
	time.Sleep(100 * time.Millisecond)
	at := f.must("set", "--host", "--up", "20MB/s")
	// Data of before, at gigabytes per second, take their receiver a while.
	calm := at.Add(settle + 200*time.Millisecond)
	f.until(calm)
	all := f.charged("host", 500*time.Millisecond)
	to := testbed.Now()
	lifted := f.must("unset", "--host")
	f.shares("host", at, all, f.rate(calm, to, x.port, y.port), 20e6)
	f.free("lifted", lifted, freely, x.port, y.port)
	// pid 1 stands for the host.
	r := f.netnice("set", "--pid", "1", "--up", "100GB/s", "--dry-run")
	if r.code != 0 || !strings.Contains(r.out, "host") {
		t.Errorf("pid 1: %v", r)
	}
}

// Traffic of the machine to itself is limited only with --loopback.
func TestLoopback(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	const first = testbed.DefaultPort
	self := f.receiver(f.A, testbed.ReceiverConfig{
		Ports: []testbed.Port{{Number: first}, {Number: first + 1}, {Number: first + 2}}, Interval: 10 * time.Millisecond,
	})
	for i, to := range []string{"127.0.0.1", "[::1]", f.A4.String()} {
		t.Run(to, func(t *testing.T) {
			port := first + uint16(i)
			x := f.send(testbed.SenderConfig{To: fmt.Sprintf("%s:%d", to, port)})
			measure := func(from, to testbed.Instant) float64 {
				f.until(to.Add(20 * time.Millisecond))
				return self.Goodput(port, from, to)
			}
			at := f.must("set", "--pid", x.pid(), "--up", "5MB/s").Add(settle)
			if got := measure(at, at.Add(span/3)); got < freely {
				t.Errorf("loopback is at %.0f bytes/s under a limit that is not for it", got)
			}
			f.judge(f.must("set", "--pid", x.pid(), "--loopback", "--up", "5MB/s"), span, func(from, to testbed.Instant) error {
				// lo takes segments of 64 KB, so headers are next to nothing. A late receiver also reads data of
				// before, so an excess does not mean that data leave faster than the limit.
				if err := compare("--loopback", measure(from, to), 5e6, 0.05); err != nil {
					return errors.New(err.Error())
				}
				return nil
			})
			at = f.must("set", "--pid", x.pid(), "--loopback=false").Add(settle)
			if got := measure(at, at.Add(span/3)); got < freely {
				t.Errorf("loopback is at %.0f bytes/s after --loopback=false", got)
			}
			f.must("unset", "--pid", x.pid())
			if _, err := x.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// netnice knows before the first packet that such a connection is local.
func TestLoopbackOfIdleConnections(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.python(options{in: f.A}, `
pairs = []
for host in sys.argv[1:]:
    at = host.removeprefix("::ffff:")
    listener = socket.create_server((at, 0), family=socket.AF_INET6 if ":" in at else socket.AF_INET)
    s = socket.create_connection((host, listener.getsockname()[1]))
    c = listener.accept()[0]
    for _ in range(20):  # TCP paces from its tenth segment on
        s.send(b"x")
        c.recv(1)
    pairs.append((s, c))
say("ready")
wait()
for s, c in pairs:
    begin, n = time.monotonic(), 0
    threading.Thread(target=s.sendall, args=(bytes(1 << 20),), daemon=True).start()
    while n < 1 << 20 and time.monotonic() < begin + 2:
        c.settimeout(0.1)
        try:
            n += len(c.recv(1 << 20))
        except TimeoutError:
            pass
    say("bytes", n)
`, "127.0.0.1", "::1", f.A4.String(), f.A6.String(), "::ffff:127.0.0.1")
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "1kB/s")
	x.tell("go")
	for _, address := range []string{"127.0.0.1", "::1", "A", "A's IPv6", "::ffff:127.0.0.1"} {
		if got := x.read("bytes"); got != "1048576" {
			t.Errorf("%s: %s bytes of 1048576 in 2 s", address, got)
		}
	}
}

// IPv4 and IPv6 share a limit, whose bytes are those of IP packets.
func TestIPv6(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{To: "6", UID: spare})
	y := f.send(testbed.SenderConfig{UID: spare})
	time.Sleep(100 * time.Millisecond)
	f.halves("IPv6 and IPv4", f.must("set", "--user", itoa(spare), "--up", "10MB/s"), x.port, y.port)
	if _, err := y.Stop(); err != nil {
		t.Fatal(err)
	}
	f.holdsFor("IPv6 alone", testbed.Now(), span, 10e6, 0.03, x.port)
}
