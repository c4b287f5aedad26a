package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// carries checks the bytes on the wire, with the line's overhead for each packet, against the line's rate of 1 MB/s.
func (f *inbound) carries(what string, tolerance float64, line func(bytes, packets float64) float64) {
	f.t.Helper()
	const limit = 1e6
	f.judge(testbed.Now().Add(1500*time.Millisecond), 2*time.Second, func(from, to testbed.Instant) error {
		f.until(from)
		begin := f.wire()
		f.until(to)
		bytes, packets := f.wire().since(begin)
		got := line(bytes, packets)
		f.t.Logf("%s: %.0f packets/s of %.0f bytes, %.4f of the line (%.4f of it IP)", what, packets, bytes/packets, got/limit, bytes/limit)
		return compare(what, got, limit, tolerance)
	})
}

// Traffic keeps within the line's own rate, including the line's overhead for each packet: small and large ones, UDP
// and TCP, sent and received.
func TestLinkOverhead(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/clock TestLineModel and TestLineIsTheModels")
	// Not parallel, for the reason at TestLink.
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.segmented()
	device := "link:" + testbed.Device
	link := func(more ...string) {
		t.Helper()
		args := append([]string{"link", testbed.Device}, more...)
		if r := f.run(f.command(args...), f.A); r.code != 0 {
			t.Fatalf("limit a link: %v", r)
		}
	}
	each := func(overhead float64) func(bytes, packets float64) float64 {
		return func(bytes, packets float64) float64 { return bytes + overhead*packets }
	}
	link("--up", "1MB/s", "--down", "4MB/s", "--overhead", "34")
	small := f.datagramsTo(6001, 64, 0, false, nil)
	f.queued()
	f.carries("small datagrams", 0.03, each(34))
	small6 := f.datagramsTo(6002, 400, 0, true, nil)
	f.carries("of two programs", 0.03, each(34))

	f.ports += 16
	x := f.flowTo(testbed.SenderConfig{Connections: 4})
	y := f.flowTo(testbed.SenderConfig{To: "6"})
	f.carries("TCP beside it", 0.03, each(34))
	small.tx.close()
	small6.tx.close()
	f.carries("TCP", 0.02, each(34))
	link("--overhead", "100", "--mpu", "1400")
	f.carries("TCP, another line", 0.02, each(100))
	_ = x.Close()
	_ = y.Close()

	small = f.datagramsTo(6003, 64, 0, false, nil) // 92 bytes and 10 are three cells
	link("--overhead", "10", "--atm")
	f.carries("in cells", 0.03, func(_, packets float64) float64 { return 3 * 53 * packets })
	link("--overhead", "18", "--mpu", "200")
	f.carries("the least", 0.03, func(_, packets float64) float64 { return 200 * packets })
	if n := f.nodes()[device]; n.Line == nil || n.Line.OverheadBytes != 18 || n.Line.LeastBytes != 200 || n.Line.ATM {
		t.Errorf("the line is shown as %+v", n.Line)
	}
	link("--overhead", "0")
	f.carries("IP alone", 0.03, each(0))
	small.tx.close()

	// Received traffic is limited by the mean size of its packets.
	link("--overhead", "100")
	f.sendTo(testbed.DefaultPort, false, testbed.SenderConfig{})
	time.Sleep(3 * time.Second)
	const full = 1500
	got := f.letThrough(device) * (full + 100) / full
	t.Logf("received: %.4f of the line", got/4e6)
	if err := compare("received", got, 4e6, 0.05); err != nil {
		t.Error(err)
	}
	link("--overhead", "0")
	time.Sleep(2500 * time.Millisecond)
	if err := compare("received, IP alone", f.letThrough(device), 4e6, 0.04); err != nil {
		t.Error(err)
	}
}

// flowTo starts a process in A that sends to B.
func (f *inbound) flowTo(cfg testbed.SenderConfig) *testbed.Sender {
	f.t.Helper()
	f.ports++
	f.receiver(f.B, testbed.ReceiverConfig{Interval: 50 * time.Millisecond, Ports: []testbed.Port{{Number: f.ports}}})
	to := fmt.Sprintf("%s:%d", f.B4, f.ports)
	if cfg.To == "6" {
		to = fmt.Sprintf("[%s]:%d", f.B6, f.ports)
	}
	cfg.To = to
	x, err := testbed.StartSender(f.A, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = x.Close() })
	if _, err := x.Start(); err != nil {
		f.t.Fatal(err)
	}
	return x
}
