package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file limit egress and ingress together: `--total`.

// totals is a user in A that sends to B and receives from there.
type totals struct {
	*inbound
	user uint32
	out  *testbed.Receiver // in B
	up   *testbed.Sender
}

const (
	totalLimit = 4e6
	totalPort  = 5017
)

func newTotals(t *testing.T, p *testbed.Pair, user uint32, connections int, congestion string) *totals {
	t.Helper()
	f := &totals{inbound: newInbound(newStage(t), p), user: user}
	f.ports += 16
	f.rx = f.reader(user)
	f.out = f.receiver(f.B, testbed.ReceiverConfig{Interval: 10 * time.Millisecond})
	var err error
	f.up, err = testbed.StartSender(f.A, testbed.SenderConfig{
		To: fmt.Sprintf("%s:%d", f.B4, testbed.DefaultPort), Connections: connections, UID: user, Congestion: congestion,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.up.Close() })
	return f
}

// both returns the IP bytes per second that the user sends and receives.
func (f *totals) both(from, to testbed.Instant) (sent, received float64) {
	f.until(to.Add(15 * time.Millisecond))
	return f.out.Goodput(0, from, to) * perByte, f.rx.Goodput(0, from, to) * perByte
}

// sum checks that egress and ingress together equal the limit, and that each has its least part.
func (f *totals) sum(what string, least float64) {
	f.t.Helper()
	f.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		sent, received := f.both(from, to)
		f.t.Logf("%s: %.4f of the limit: %.4f sent, %.4f received", what, (sent+received)/totalLimit, sent/totalLimit, received/totalLimit)
		if min(sent, received) < least*totalLimit {
			return fmt.Errorf("%s: one way has %.0f bytes/s", what, min(sent, received))
		}
		return compare(what, sent+received, totalLimit, 0.03)
	})
}

// Bulk traffic both ways gets the limit, and neither way starves, also while no daemon runs. Each way gets the part
// that the other does not use.
func TestTotal(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newTotals(t, testutil.MustPair(t), spare+20, 3, "")
	f.must("set", "--user", itoa(f.user), "--total", "4MB/s")
	down := f.sendTo(totalPort, false, testbed.SenderConfig{Connections: 2})
	time.Sleep(1500 * time.Millisecond)
	f.sum("received alone", 0)
	f.countedApart()
	if _, err := f.up.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	f.sum("both ways", 0.4)
	f.daemon.kill()
	f.sum("without a daemon", 0.3)
	f.daemon = f.daemonIn(f.A)
	if _, err := down.Stop(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	f.sum("sent alone", 0)
	f.lost(f.up, 0, 20*time.Millisecond)
}

// countedApart checks that ingress alone does not count as egress, where only acknowledgements count.
func (f *totals) countedApart() {
	f.t.Helper()
	n := f.nodes()["user:"+itoa(f.user)]
	if n.Down.Bytes < totalLimit || n.Up.Bytes > n.Down.Bytes/10 || n.Up.RateBytesPerSec > totalLimit/10 {
		f.t.Errorf("%d bytes are shown as sent, %d bytes/s, and %d as received", n.Up.Bytes, n.Up.RateBytesPerSec, n.Down.Bytes)
	}
	if n.Total == nil {
		f.t.Fatalf("no use of the limit is shown: %+v", n)
	}
	if both := n.Up.Bytes + n.Down.Bytes; n.Total.Bytes > both+both/50 || n.Total.Bytes < both-both/50 {
		f.t.Errorf("the limit was charged %d bytes, for %d that were sent and received", n.Total.Bytes, both)
	}
}

// With the input meter off only egress counts.
func TestTotalWithoutInputMeter(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestTotal and internal/daemon TestInputMeterOfTheMachine")
	t.Parallel()
	spare := newUsers()
	line := relay.RoundTrip(4 * time.Millisecond)
	line.BtoA.Rate = 5 * totalLimit
	// Acknowledgements wait behind received data: bbr takes that for a slower path.
	f := newTotals(t, testutil.MustDistantPair(t, line), spare+21, 2, "cubic")
	f.must("set", "--user", itoa(f.user), "--total", "4MB/s", "--input-meter=false")
	f.sendTo(totalPort, false, testbed.SenderConfig{Connections: 2})
	if _, err := f.up.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	f.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		sent, received := f.both(from, to)
		t.Logf("%.4f of the limit sent, %.0f MB/s received", sent/totalLimit, received/1e6)
		if received < 3*totalLimit {
			return fmt.Errorf("%.0f bytes/s are received", received)
		}
		if sent < 0.8*totalLimit || sent > 1.03*totalLimit { // acknowledgements are egress, too
			return fmt.Errorf("%.0f bytes/s are sent", sent)
		}
		return nil
	})
	f.must("set", "--user", itoa(f.user), "--input-meter")
	time.Sleep(4 * time.Second) // until senders that were five times as fast have repeated their lost data
	f.sum("with it", 0.3)
}

// What is sent under a lifted limit follows as soon as TCP's timer ends, two seconds at most, also while data comes in
// and does not count.
func TestTotalIsLifted(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestTotal")
	t.Parallel()
	const most, least = 2200 * time.Millisecond, 1e6
	spare := newUsers()
	f := newTotals(t, testutil.MustPair(t), spare+22, 2, "")
	f.sendTo(totalPort, false, testbed.SenderConfig{Connections: 2})
	if _, err := f.up.Start(); err != nil {
		t.Fatal(err)
	}
	for _, low := range []string{"2kB/s", "20kB/s", "200kB/s"} {
		f.must("set", "--user", itoa(f.user), "--total", low, "--input-meter=false")
		time.Sleep(3 * time.Second)
		at := f.must("unset", "--user", itoa(f.user))
		f.acts(low+" lifted", at, most, func(from, to testbed.Instant) bool {
			sent, _ := f.both(from, to)
			return sent >= least
		})
	}
}
