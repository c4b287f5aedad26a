package lan

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

func station(t *testing.T) *testbed.NetNS {
	t.Helper()
	n, err := testbed.NewNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func segment(t *testing.T, bytesPerSec uint64) *Segment {
	t.Helper()
	testutil.RequireRoot(t)
	s, err := NewSegment(bytesPerSec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func attach(t *testing.T, s *Segment, n *testbed.NetNS, address string) {
	t.Helper()
	if err := s.Attach(n, netip.MustParseAddr(address), 1000); err != nil {
		t.Fatal(err)
	}
}

// send sends in bulk from each namespace to one receiver and returns the payload
// bytes per second of each connection.
func send(t *testing.T, to *testbed.NetNS, at string, from map[*testbed.NetNS]int) map[netip.Addr]float64 {
	t.Helper()
	rx, err := testbed.StartReceiver(to, testbed.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rx.Close() })
	for n, connections := range from {
		tx, err := testbed.StartSender(n, testbed.SenderConfig{
			To: netip.AddrPortFrom(netip.MustParseAddr(at), testbed.DefaultPort).String(), Connections: connections,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Close() })
		if _, err := tx.Start(); err != nil {
			t.Fatal(err)
		}
	}
	begin := testbed.Now().Add(time.Second)
	end := begin.Add(2 * time.Second)
	if err := testbed.Sleep(t.Context(), end.Sub(testbed.Now())+100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	rates, each := make(map[netip.Addr]float64), rx.ConnGoodputs(0, begin, end)
	for i, c := range rx.Conns(0) {
		remote, err := netip.ParseAddrPort(c.Remote)
		if err != nil {
			t.Fatal(err)
		}
		rates[remote.Addr().Unmap()] += each[i]
	}
	return rates
}

// Two stations share the segment's rate, packet by packet, and a station with more connections has no more turns.
func TestSegmentIsShared(t *testing.T) {
	t.Parallel()
	const rate = 10e6 / 8
	s := segment(t, rate)
	a, b, c := station(t), station(t), station(t)
	attach(t, s, a, "10.98.0.1")
	attach(t, s, b, "10.98.0.2")
	attach(t, s, c, "10.98.0.3")
	sum, least := 0.0, 1e9
	for _, r := range send(t, c, "10.98.0.3", map[*testbed.NetNS]int{a: 1, b: 4}) {
		sum, least = sum+r, min(least, r)
	}
	t.Logf("%.3f MB/s, the lesser one %.3f", sum/1e6, least/1e6)
	// Headers and acknowledgements take 4 to 9% of the rate.
	if sum < 0.85*rate || sum > rate {
		t.Errorf("two stations had %.0f bytes/s of %.0f", sum, rate)
	}
	if least < 0.4*sum {
		t.Errorf("one of two stations had %.0f bytes/s of %.0f", least, sum)
	}
}

// A switch forwards the packets of its stations at the segment's rate, and loses the packets that do not fit into
// its buffer.
func TestSwitch(t *testing.T) {
	t.Parallel()
	const rate = 10e6 / 8
	s := segment(t, rate)
	w, err := NewSwitch(s, netip.MustParseAddr("10.98.0.254"), 10, netip.MustParsePrefix("10.99.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	a, c := station(t), station(t)
	if err := w.Attach(a, netip.MustParseAddr("10.99.1.1"), 10*rate); err != nil {
		t.Fatal(err)
	}
	attach(t, s, c, "10.98.0.3")
	if err := Via(c, netip.MustParseAddr("10.98.0.254")); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, r := range send(t, c, "10.98.0.3", map[*testbed.NetNS]int{a: 4}) {
		sum += r
	}
	t.Logf("%.3f MB/s", sum/1e6)
	if sum < 0.8*rate || sum > rate {
		t.Errorf("%.0f bytes/s came through, the segment has %.0f", sum, rate)
	}
	if drops, err := s.Drops(); err != nil || drops == 0 {
		t.Errorf("a buffer of 10 packets dropped %d of four connections' (%v)", drops, err)
	}
}
