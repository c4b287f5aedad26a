package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file limit UDP egress in network namespaces other than that of the daemon.

// datagramsFrom starts a sender with a command before it, in a namespace, and a receiver in B.
func (f *inbound) datagramsFrom(in *testbed.NetNS, port string, under ...string) datagrams {
	f.t.Helper()
	d := datagrams{f: f, headers: 28}
	d.rx = f.python(options{in: f.B}, datagramReceiver, port, "4")
	d.rx.read("ready")
	d.tx = f.python(options{in: in, under: under}, datagramFlood, f.B4.String(), port, "1400", "0")
	d.tx.read("ready")
	return d
}

// A limited program floods from a container's namespace. It waits there, with and without a daemon, and nothing is
// left there in the end.
func TestUpElsewhere(t *testing.T) {
	t.Parallel()
	const limit = 1e6
	s, home, p := newStage(t), newNetNS(t), testutil.MustPair(t)
	f := newInboundFrom(s, p, home)
	s.named(p.A, "container")
	before := devicesIn(t, p.A) + devicesIn(t, home)
	d := f.datagramsFrom(home, "6001", netniceBinary, "run", "--up", "1MB/s", "--", "ip", "netns", "exec", "container")
	f.queued()
	if there := devicesIn(t, p.A); !strings.Contains(there, "netnice0q") {
		t.Errorf("no queue among %q", there)
	}
	holds := func(what string) {
		t.Helper()
		time.Sleep(1500 * time.Millisecond)
		begin := testbed.Now()
		got, lost := d.rate(2 * time.Second)
		t.Logf("%s: %.4f of the limit, %.4f lost", what, got/limit, lost)
		f.near(what, begin, got, limit, 0.03)
		switch excuse := cpus.excuse(begin, testbed.Now()); { // 0.005 is on the way
		case lost > 0.07 && excuse == "" || lost > 0.3:
			t.Errorf("%s: %.3f of what was sent did not come", what, lost)
		case lost > 0.07:
			t.Logf("not judged: %s: %.3f of what was sent did not come, but %s", what, lost, excuse)
		}
	}
	// The queue's rate follows the clock as soon as the daemon has time: namespaces of other tests that come and go
	// keep it busy.
	f.assertWithin("the queue has its rate", 10*time.Second, func() bool {
		got, _ := d.rate(500 * time.Millisecond)
		return got > 0.95*limit
	})
	holds("queued")
	f.daemon.kill()
	holds("without a daemon")
	second := s.daemonIn(home)
	holds("adopted")
	f.must("down")
	<-second.ended
	if after := devicesIn(t, p.A) + devicesIn(t, home); after != before {
		t.Errorf("devices were %q and are %q", before, after)
	}
	if free, _ := d.rate(500 * time.Millisecond); free < 3*limit {
		t.Errorf("%.0f bytes/s after all limits were lifted", free)
	}
}

// leaver is the user of TestUpNamespaceGoes.
const leaver = 1017

// A namespace disappears after its last process, although packets wait there.
func TestUpNamespaceGoes(t *testing.T) {
	t.Parallel()
	s, home := newStage(t), newNetNS(t)
	p, err := testbed.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	f := newInboundFrom(s, p, home)
	// The user has no other process: root's limit would also cover other tests.
	d := datagrams{f: f, headers: 28, tx: f.python(options{in: p.A, uid: leaver}, datagramFlood, f.B4.String(), "6001", "1400", "0")}
	d.tx.read("ready")
	f.must("set", "--user", itoa(leaver), "--up", "100KB/s")
	f.queued()
	joined := devicesIn(t, p.B)
	_ = f.rx.Close()
	_ = d.tx.cmd.Process.Kill()
	if err := p.A.Close(); err != nil {
		t.Error(err)
	}
	// The other end of the pair that joined the namespace disappears with it.
	s.assertWithin("the namespace is gone", 8*time.Second, func() bool { return devicesIn(t, p.B) != joined })
}
