package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

const (
	manyPairs = 2000 // pairs of devices that are down, like those of stopped containers
	// settleDevices is the longest time until programs are attached to one device for each slot, in both directions.
	// Each device takes a grace period of the kernel.
	settleDevices = 3 * time.Minute
	statusWithin  = 100 * time.Millisecond
	// statusMeanwhile is the longest time that status may take while the daemon attaches programs to devices. It waits
	// for the kernel's lock on devices: 2.5 and 3.4 s were seen.
	statusMeanwhile = 4 * time.Second
)

// In a namespace with 4,000 devices the limits hold through the one device that is up. The daemon answers at once,
// also while it attaches programs to devices, and restores the previous state of the namespace. It counts the devices
// beyond the slots.
//
// The test runs alone in its package: the kernel makes and removes thousands of devices meanwhile, and no other task
// gets its lock.
func TestManyDevices(t *testing.T) {
	if os.Getenv("NETNICE_TEST_DEVICES") == "" {
		t.Skip("only what NETNICE_TEST_DEVICES=1 asks for: it takes minutes")
	}
	s, p := newStage(t), testutil.MustPair(t)
	objects := ours(t)
	addPairs(t, p.A)
	before := (&inbound{field: &field{stage: s, Pair: p}}).devices()
	f := newInbound(s, p)

	udp := f.datagramsTo(6001, 1400, 5e6, false, nil)
	f.must("set", "--pid", udp.tx.pid(), "--up", "1MB/s")
	far := f.receiver(f.B, testbed.ReceiverConfig{Interval: 10 * time.Millisecond})
	sender := f.startSender(f.A, testbed.SenderConfig{To: f.to(testbed.DefaultPort)})
	if _, err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	sent := f.must("set", "--pid", itoa(sender.PID()), "--up", "5MB/s")
	f.judge(sent, span, func(from, to testbed.Instant) error {
		f.until(to.Add(15 * time.Millisecond)) // one more sample has arrived after the span
		return compare("TCP, sent", far.Goodput(testbed.DefaultPort, from, to)*perByte, 5e6, 0.05)
	})
	f.sendTo(testbed.DefaultPort, false, testbed.SenderConfig{})
	f.tolerance = 0.05
	received := f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
	f.receives("TCP, received", received, 5e6, perByte, testbed.DefaultPort)

	f.awaitDevices(2 * (2*manyPairs + 1 - (bpf.MaxDevices - 1)))
	f.answersSoon()
	since := testbed.Now()
	rate, _ := udp.rate(span)
	f.near("UDP, sent", since, rate, 1e6, 0.05)
	f.receives("TCP, received, later", since, 5e6, perByte, testbed.DefaultPort)

	f.leave()
	if after := f.devices(); after != before {
		t.Errorf("devices before:\n%.2000s\nafter:\n%.2000s", before, after)
	}
	if !eventually(10*time.Second, func() bool {
		for o := range ours(t) {
			if !objects[o] {
				return false
			}
		}
		return true
	}) {
		t.Errorf("netnice has left objects in the kernel: %v", ours(t))
	}
}

// addPairs makes manyPairs veth pairs with both devices in one namespace, and down.
func addPairs(t *testing.T, n *testbed.NetNS) {
	t.Helper()
	begin := time.Now()
	for i := range manyPairs {
		err := n.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: named(fmt.Sprintf("many%da", i)), PeerName: fmt.Sprintf("many%db", i)})
		if err != nil {
			t.Fatalf("make pair %d of %d: %v", i, manyPairs, err)
		}
	}
	t.Logf("%d pairs of devices made in %v", manyPairs, time.Since(begin).Round(time.Second))
}

// awaitDevices waits until programs are attached to one device for each slot, in both directions, and until the
// given number is refused. The daemon answers meanwhile.
func (f *inbound) awaitDevices(refused int) {
	f.t.Helper()
	begin, slowest := testbed.Now(), time.Duration(0)
	for {
		asked := testbed.Now()
		got := f.status().Counters["device_refused"]
		slowest = max(slowest, testbed.Now().Sub(asked))
		took := testbed.Now().Sub(begin)
		if got == uint64(refused) {
			f.t.Logf("all slots are taken after %v; the slowest answer meanwhile took %v", took.Round(time.Millisecond), slowest)
			break
		}
		if took > timeoutScale*settleDevices {
			f.t.Fatalf("device_refused is %d after %v, want %d", got, took, refused)
		}
		time.Sleep(100 * time.Millisecond)
	}
	f.notSlower("netnice status while devices were entered", begin, slowest, statusMeanwhile)
}

// answersSoon checks how long netnice status takes, including the start of the program.
func (f *inbound) answersSoon() {
	f.t.Helper()
	begin := testbed.Now()
	var took []time.Duration
	for range 5 {
		asked := testbed.Now()
		f.status()
		took = append(took, testbed.Now().Sub(asked))
	}
	slices.Sort(took)
	f.t.Logf("netnice status took %v", took)
	f.notSlower("netnice status", begin, took[len(took)/2], statusWithin)
}

// leave runs netnice down, which takes a grace period of the kernel for each device as well.
func (f *inbound) leave() {
	f.t.Helper()
	begin := time.Now()
	cmd := f.command("down")
	if err := f.start(cmd, nil); err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		f.t.Errorf("netnice down: %v", err)
	}
	f.t.Logf("netnice down took %v", time.Since(begin).Round(time.Millisecond))
}
