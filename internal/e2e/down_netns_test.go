package e2e

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file limit ingress in network namespaces other than that of the daemon.

// newNetNS makes a namespace that lasts until the test ends.
func newNetNS(t *testing.T) *testbed.NetNS {
	t.Helper()
	testutil.RequireRoot(t)
	n, err := testbed.NewNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// devicesIn lists the devices of a namespace, without the aliases and addresses that differ from run to run.
func devicesIn(t *testing.T, n *testbed.NetNS) string {
	t.Helper()
	links, err := n.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return strings.Join(names, " ")
}

// faultless checks that no packet passed that a limit had to hold.
func (f *inbound) faultless() {
	f.t.Helper()
	for name, n := range f.status().Counters {
		if n > 0 && strings.HasPrefix(name, "shape") {
			f.t.Errorf("fault %s: %d", name, n)
		}
	}
}

// A process is in another namespace, over Ethernet and over a device without it. The limit outlives the daemon
// there, too, and leaves nothing.
func TestDownElsewhere(t *testing.T) {
	t.Parallel()
	for _, distant := range testutil.Subset([]bool{false, true}, 0) {
		t.Run(fmt.Sprintf("TUN=%t", distant), func(t *testing.T) {
			t.Parallel()
			const limit = 5e6
			s, home := newStage(t), newNetNS(t)
			p := func() *testbed.Pair {
				if distant {
					return testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond))
				}
				return testutil.MustPair(t)
			}()
			f := newInboundFrom(s, p, home)
			before := devicesIn(t, p.A) + devicesIn(t, home)
			f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
			x := f.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
			time.Sleep(time.Second) // TCP's start over that path
			f.receives("in", testbed.Now(), limit, perByte, 5001)
			f.lost(x, 20, 60*time.Millisecond)
			f.faultless()
			f.daemon.kill()
			f.receives("without a daemon", testbed.Now(), limit, perByte, 5001)
			second := s.daemonIn(home)
			f.receives("adopted", testbed.Now(), limit, perByte, 5001)
			f.must("down")
			<-second.ended
			if after := devicesIn(t, p.A) + devicesIn(t, home); after != before {
				t.Errorf("devices were %q and are %q", before, after)
			}
		})
	}
}

// named gives a namespace a name on the stage, as `ip netns` does.
func (s *stage) named(n *testbed.NetNS, name string) {
	s.t.Helper()
	s.do(func() error {
		file := filepath.Join("/run/netns", name)
		if err := os.MkdirAll("/run/netns", 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, nil, 0o444); err != nil {
			return err
		}
		return unix.Mount(n.Path(), file, "", unix.MS_BIND, "")
	})
}

// A program has a limit when it enters a namespace. It receives there exactly the bytes that were sent.
func TestDownEnters(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownElsewhere")
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	s, home, p := newStage(t), newNetNS(t), testutil.MustPair(t)
	f := newInboundFrom(s, p, home)
	s.named(p.A, "container")
	dir := t.TempDir()
	data := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(data) // never fails
	if err := os.WriteFile(filepath.Join(dir, "data"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	f.python(options{in: f.B}, fileServer, dir).read("ready")
	before := devicesIn(t, p.A)
	out := filepath.Join(dir, "out")
	begin := testbed.Now()
	// netnice finds a newly entered namespace within some 20 ms, or later where the processors are busy.
	cmd := s.command("run", "--down", "4MB/s", "--", "ip", "netns", "exec", "container", "sh", "-c", `sleep 0.5; exec "$@"`, "sh",
		curl, "-sS", "-w", "%{time_total}", "-o", out, fmt.Sprintf("http://%s:8080/data", f.B4))
	r := s.run(cmd, home)
	if r.code != 0 {
		t.Fatal(r)
	}
	seconds, err := strconv.ParseFloat(r.out, 64)
	if err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("%d bytes came that differ from the %d sent", len(got), len(data))
	}
	want := float64(len(data)) * perByte / 4e6
	t.Logf("8 MiB took %.3f s, at the limit %.3f s", seconds, want)
	if seconds < want*0.97 || seconds > want*1.15 && !excused(t, begin, testbed.Now()) {
		t.Errorf("8 MiB took %.3f s, at the limit %.3f s", seconds, want)
	}
	s.assertWithin("the namespace is as it was", 3*time.Second, func() bool { return devicesIn(t, p.A) == before })
}

// One limit covers the traffic that a user's processes in two namespaces receive together.
func TestDownTwoNamespaces(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownElsewhere and internal/enforce/shaping TestTwoPlaces")
	t.Parallel()
	spare := newUsers()
	user := spare + 11 // a user of this test alone
	s := newStage(t)
	f := newInbound(s, testutil.MustPair(t))
	before := devicesIn(t, f.A)
	f.ports += 16
	near := f.reader(user)
	g := &inbound{field: &field{stage: s, Pair: testutil.MustPair(t), ports: f.ports}, tolerance: downTolerance}
	g.rx = g.reader(user)
	g.field.rx = g.rx
	there := devicesIn(t, g.A)
	f.must("set", "--user", itoa(user), "--down", "10MB/s")
	x := f.sendTo(5017, false, testbed.SenderConfig{Connections: 2})
	y := g.sendTo(5017, false, testbed.SenderConfig{Connections: 2})
	time.Sleep(time.Second)
	f.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		f.until(to.Add(15 * time.Millisecond))
		here, far := near.Goodput(5017, from, to)*perByte, g.rx.Goodput(5017, from, to)*perByte
		t.Logf("%.4f of 10 MB/s: %.2f and %.2f", (here+far)/1e7, here/1e6, far/1e6)
		if least := min(here, far); least < 2e6 {
			return fmt.Errorf("one of them receives %.0f bytes/s", least)
		}
		return compare("both", here+far, 10e6, downTolerance)
	})
	f.lost(x, 20, 40*time.Millisecond)
	f.lost(y, 20, 40*time.Millisecond)
	f.faultless()
	f.must("unset", "--user", itoa(user))
	if after := devicesIn(t, f.A) + devicesIn(t, g.A); after != before+there {
		t.Errorf("devices were %q, there %q, and are %q", before, there, after)
	}
}

// A namespace disappears in mid-flow with all its processes. Nothing of it is left, and the daemon and its other
// limits go on.
func TestDownNamespaceGoes(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpNamespaceGoes and TestDownElsewhere")
	t.Parallel()
	s, home := newStage(t), newNetNS(t)
	stays := newInboundFrom(s, testutil.MustPair(t), home)
	before := devicesIn(t, home)
	p, err := testbed.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	goes := &inbound{field: &field{stage: s, Pair: p, ports: testbed.DefaultPort - 1}, tolerance: downTolerance}
	goes.rx = goes.reader(0)
	goes.field.rx = goes.rx
	stays.must("set", "--pid", itoa(goes.rx.PID()), "--down", "2MB/s")
	x := goes.sendTo(5001, false, testbed.SenderConfig{})
	goes.receives("in", testbed.Now(), 2e6, perByte, 5001)
	if after := devicesIn(t, home); !strings.Contains(after, "netnice0h") {
		t.Errorf("no link among %q", after)
	}
	stays.must("set", "--pid", itoa(stays.rx.PID()), "--down", "5MB/s")
	stays.sendTo(5001, false, testbed.SenderConfig{})
	// The receiver, the sender and the last handle of the namespace go.
	_ = goes.rx.Close()
	_, _ = x.Stop()
	_ = x.Close()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	s.assertWithin("its link is gone", 3*time.Second, func() bool { return !strings.Contains(devicesIn(t, home), "netnice0h") })
	stays.receives("the other", testbed.Now(), 5e6, perByte, 5001)
	stays.faultless()
	stays.must("down")
	<-stays.daemon.ended
	if after := devicesIn(t, home); after != before {
		t.Errorf("devices were %q and are %q", before, after)
	}
}
