package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A member that leaves a group is free of its limit at once, in what it receives and in its UDP egress. The
// remaining member has all of the limit.
func TestFairLeaves(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestGroupLeft, internal/source/groups TestMemberInsideAnother")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.ports += 16
	other := f.reader(0)
	port := f.ports + 1
	f.sendTo(testbed.DefaultPort, false, testbed.SenderConfig{Connections: 2})
	f.sendTo(port, true, testbed.SenderConfig{})
	const limit = 8e6
	pid, leaver := itoa(f.rx.PID()), itoa(other.PID())
	f.tolerance = 0.05
	f.must("set", "--pid", leaver, "--down", "32MB/s") // it stays, and leaves the machine time
	at := f.must("fair", "--group", "down", "--down", "8MB/s", pid, leaver)
	// Data on the way at some GB/s are more than the queue holds. While TCP fills the holes, data come in jumps
	// (0.78 of the limit in the fourth second, 1.22 in the fifth).
	f.judge(at.Add(time.Second), 6*time.Second, func(from, to testbed.Instant) error {
		got := f.arrived(from, to, testbed.DefaultPort)*perByte + other.Goodput(port, from, to)*perByte6
		t.Logf("both receive %.4f of the limit", got/limit)
		return compare("both", got, limit, 0.05)
	})
	at = f.must("fair", "--leave", leaver)
	// Windows take their time: a half second sees 0.5 to 1.5 of the limit in the first two seconds.
	f.receives("who stays", at.Add(2500*time.Millisecond), limit, perByte, testbed.DefaultPort)
	now := testbed.Now()
	time.Sleep(span)
	f.near("who has left receives", now, other.Goodput(port, now, now.Add(span-50*time.Millisecond))*perByte6, 4*limit, 0.1)

	stays := f.datagramsTo(6001, 1400, 0, false, nil)
	leaves := f.datagramsTo(6002, 1400, 0, true, nil)
	f.must("fair", "--group", "up", "--up", "2MB/s", stays.tx.pid(), leaves.tx.pid())
	f.queued()
	time.Sleep(1500 * time.Millisecond)
	now = testbed.Now()
	a, _ := stays.rate(2 * time.Second)
	f.near("one of two sends", now, a, 1e6, 0.05)
	f.must("fair", "--leave", leaves.tx.pid())
	now = testbed.Now()
	if b, _ := leaves.rate(time.Second); b < 6e6 {
		t.Errorf("who has left sends %.0f bytes/s", b)
	}
	a, _ = stays.rate(2 * time.Second)
	f.near("who stays sends", now, a, 2e6, 0.05)

	f.must("fair", "--leave", stays.tx.pid(), pid)
	f.must("unset", "--pid", leaver)
	f.assertWithin("no limit is left", 10*time.Second, func() bool { return len(f.nodes()) == 0 })
}
