package e2e

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file set, change and lift limits on ingress in the middle of transfers. The limits outlive the
// daemon and leave nothing behind.

// catchUp is the longest time that flows of GB/s need, after a limit in mid-flow, to fill the holes in their data.
// The end of the queue has made these holes. Until then netnice lets the limit's rate through, but data in order
// arrive in jumps.
const catchUp = 5 * time.Second

// fillsHoles is the tolerance for the rate of data in order after that time, since the last holes take longer.
const fillsHoles = 0.04

func TestDownChanged(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownLevels and TestChangeInMidTransfer")
	t.Parallel()
	const both = (perByte + perByte6) / 2 // half of the traffic is IPv6
	f := newInbound(newStage(t), testutil.MustPair(t))
	x := f.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
	y := f.sendTo(5002, true, testbed.SenderConfig{Connections: 2})
	defer func() { _, _ = x.Stop() }()
	defer func() { _, _ = y.Stop() }()
	f.free("before", testbed.Now(), freely, 5001, 5002)
	pid := itoa(f.rx.PID())
	at := f.must("set", "--pid", pid, "--down", "10MB/s")
	f.near("let through at once", at, f.letThrough("pid:"+pid), 10e6, 0.03)
	f.until(at.Add(catchUp))
	f.tolerance = fillsHoles
	at = f.must("set", "--pid", pid, "--down", "40MB/s")
	f.near("let through, raised", at, f.letThrough("pid:"+pid), 40e6, 0.03) // TCP still fills holes
	f.receives("lowered", f.must("set", "--pid", pid, "--down", "5MB/s"), 5e6, both, 5001, 5002)
	f.free("lifted", f.must("set", "--pid", pid, "--down", "none"), freely, 5001, 5002)
}

// A limit on the host covers the processes in all its namespaces.
func TestDownHost(t *testing.T) {
	machineAlone(t)
	s := newStage(t)
	f := newInbound(s, testutil.MustPair(t))
	g := &inbound{field: &field{stage: s, Pair: testutil.MustPair(t), ports: f.ports}, tolerance: downTolerance}
	g.rx = g.reader(0)
	g.field.rx = g.rx
	f.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
	g.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
	f.free("before", testbed.Now(), freely, 5001)
	at := f.must("set", "--host", "--down", "10MB/s")
	f.near("let through at once", at, f.letThrough("host"), 10e6, 0.1)
	at = f.must("unset", "--host")
	f.free("unset", at, freely, 5001)
	g.free("unset there", at, freely, 5001)
	if after := devicesIn(t, g.A); strings.Contains(after, "netnice") {
		t.Errorf("devices are %q", after)
	}
}

// A process without a limit is as fast as before.
func TestDownNeighbour(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownLevels and TestFamilyEndsAtItsRoot")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.ports += 32
	other := f.reader(0)
	f.ports -= 32
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "10MB/s")
	f.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
	f.sendTo(5033, false, testbed.SenderConfig{})
	f.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		f.until(to.Add(15 * time.Millisecond))
		got := other.Goodput(5033, from, to)
		t.Logf("the neighbour: %.0f MB/s", got/1e6)
		return compare("the limited one beside it", f.arrived(from, to, 5001)*perByte, 10e6, downTolerance)
	})
	now := testbed.Now()
	if got := other.Goodput(5033, now.Add(-time.Second), now.Add(-20*time.Millisecond)); got < freely {
		t.Errorf("the neighbour receives %.0f bytes/s", got)
	}
}

// A process has a limit of its own within that of its user.
func TestDownLevels(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.ports += 16
	other := f.reader(spare + 26)
	f.ports += 16
	third := f.reader(spare + 26)
	f.must("set", "--user", itoa(spare+26), "--down", "10MB/s")
	f.must("set", "--pid", itoa(third.PID()), "--down", "2MB/s")
	f.sendTo(5017, false, testbed.SenderConfig{Connections: 2})
	f.sendTo(5033, false, testbed.SenderConfig{Connections: 2})
	time.Sleep(time.Second)
	f.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		f.until(to.Add(15 * time.Millisecond))
		inner := third.Goodput(5033, from, to) * perByte
		outer := other.Goodput(5017, from, to)*perByte + inner
		t.Logf("the process %.4f of 2 MB/s, the user %.4f of 10 MB/s", inner/2e6, outer/10e6)
		if err := compare("the process", inner, 2e6, 0.05); err != nil {
			return err
		}
		return compare("the user", outer, 10e6, downTolerance)
	})
}

func TestDownKilledDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestKilledDaemon and internal/enforce/shaping TestTakenOver")
	t.Parallel()
	s := newStage(t)
	before := ours(t)
	f := newInbound(s, testutil.MustPair(t))
	links, qdiscs, sysctls := f.devices(), f.qdiscs(), sysctlsOf(t)
	x := f.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
	pid := itoa(f.rx.PID())
	at := f.must("set", "--pid", pid, "--down", "10MB/s")
	f.near("with a daemon", at, f.letThrough("pid:"+pid), 10e6, 0.03)
	f.until(at.Add(catchUp))
	f.tolerance = fillsHoles
	made := objectsOf(t, f.daemon.cmd.Process.Pid)
	f.daemon.kill()
	f.receives("without a daemon", testbed.Now(), 10e6, perByte, 5001)
	if err := x.Grow(2); err != nil {
		t.Fatal(err)
	}
	f.receives("more connections without a daemon", testbed.Now(), 10e6, perByte, 5001)
	second := s.daemonIn(f.A)
	f.receives("adopted", testbed.Now(), 10e6, perByte, 5001)
	n := f.nodes()["pid:"+pid]
	if n.Down.Bytes < 40e6 || n.Down.RateBytesPerSec == 0 || len(n.Limits) != 1 || !n.Limits[0].Enforced {
		t.Errorf("ls shows %+v", n)
	}
	maps.Copy(made, objectsOf(t, second.cmd.Process.Pid))
	f.receives("changed", f.must("set", "--pid", pid, "--down", "20MB/s"), 20e6, perByte, 5001)
	f.free("down", f.must("down"), freely, 5001)
	<-second.ended
	s.leaves(made, before)
	if got := f.devices(); got != links {
		t.Errorf("devices were\n%s\nand are\n%s", links, got)
	}
	if got := f.qdiscs(); got != qdiscs {
		t.Errorf("queueing disciplines were\n%s\nand are\n%s", qdiscs, got)
	}
	if got := sysctlsOf(t); got != sysctls {
		t.Error("sysctls under net changed")
	}
}

// The test kills the daemon. Then `netnice down` alone lifts the limits, in the namespace of the limit.
func TestDownDownAfterKill(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownAfterKill, of what is sent")
	t.Parallel()
	s := newStage(t)
	f := newInbound(s, testutil.MustPair(t))
	links, qdiscs := f.devices(), f.qdiscs()
	f.sendTo(5001, false, testbed.SenderConfig{})
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "10MB/s")
	f.daemon.kill()
	if r := s.run(s.command("down"), f.A); r.code != 0 {
		t.Fatal(r)
	}
	f.free("after down", testbed.Now(), freely, 5001)
	if got := f.devices() + f.qdiscs(); got != links+qdiscs {
		t.Errorf("were\n%s%s\nand are\n%s", links, qdiscs, got)
	}
}

// A device that appears later is limited. A device that disappears affects no other.
func TestDownDevices(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownStacked and TestDownBoundToDevice")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "10MB/s")
	f.sendTo(5001, false, testbed.SenderConfig{})
	remove := f.join("nn1", "10.97.0")
	x, err := testbed.StartSender(f.B, testbed.SenderConfig{To: "10.97.0.1:5002"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	if _, err := x.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settle) // the daemon has seen the device
	f.receives("by two devices", testbed.Now(), 10e6, perByte, 5001, 5002)
	remove()
	f.receives("by one again", testbed.Now(), 10e6, perByte, 5001)
	if c := f.status().Counters; c["shape_class"]+c["shape_device"]+c["shape_header"] > 0 {
		t.Errorf("faults: %v", c)
	}
}
