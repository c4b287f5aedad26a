package relay_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

const ms = time.Millisecond

// sockets returns a UDP socket of A that is connected to one of B.
func sockets(t *testing.T, p *testbed.Pair, v6 bool) (a, b *net.UDPConn) {
	t.Helper()
	to := netip.AddrPortFrom(p.B4, 7)
	if v6 {
		to = netip.AddrPortFrom(p.B6, 7)
	}
	err := p.B.Do(func() (err error) {
		b, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	err = p.A.Do(func() (err error) {
		a, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if err := b.SetReadBuffer(16 << 20); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func counters(t *testing.T, p *testbed.Pair) (aToB, bToA relay.Counters) {
	t.Helper()
	aToB, bToA, err := p.Relay.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return aToB, bToA
}

func TestDelay(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 20 * ms}, BtoA: relay.Path{Delay: 7 * ms}})
		a, b := sockets(t, p, v6)
		go func() { // echo, until the socket is closed
			buf := make([]byte, 100)
			for {
				n, from, err := b.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				if _, err := b.WriteToUDPAddrPort(buf[:n], from); err != nil {
					return
				}
			}
		}()
		var trips []time.Duration
		buf := make([]byte, 100)
		for range 20 {
			begin := time.Now()
			if _, err := a.Write(buf); err != nil {
				t.Fatal(err)
			}
			if err := a.SetReadDeadline(begin.Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Read(buf); err != nil {
				t.Fatal(err)
			}
			trips = append(trips, time.Since(begin))
		}
		least, median := testbed.Percentile(trips, 0), testbed.Percentile(trips, 50)
		t.Logf("IPv6 %v: least %v, median %v", v6, least, median)
		if least < 27*ms || median > 29*ms { // four wakeups; 1.05 ms occurred once
			t.Errorf("round trips from %v, median %v, want 27 ms and at most 2 ms more", least, median)
		}
	}
}

// The relay separates the time without a processor from the path's own delay.
func TestStalled(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 20 * ms}})
	a, b := sockets(t, p, false)
	if got := stream(t, a, b, 10, 100, 0); len(got) != 10 {
		t.Fatalf("%d of 10 packets came", len(got))
	}
	before, _ := counters(t, p)
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(10 * ms)
		_ = syscall.Kill(p.Relay.PID(), syscall.SIGSTOP)
		time.Sleep(80 * ms)
		_ = syscall.Kill(p.Relay.PID(), syscall.SIGCONT)
	}()
	if got := stream(t, a, b, 10, 100, 0); len(got) != 10 {
		t.Fatalf("%d of 10 packets came", len(got))
	}
	after, back := counters(t, p)
	if got := after.Stalled - before.Stalled; got < 60*ms || got > 120*ms || back.Stalled != after.Stalled {
		t.Errorf("of a pause of 80 ms, 10 before something was due, %v and %v are counted", got, back.Stalled-before.Stalled)
	}
}

// stream sends n numbered packets of a size and returns the numbers that arrived.
func stream(t *testing.T, a, b *net.UDPConn, n, size int, pause time.Duration) []int {
	t.Helper()
	got := make(chan []int)
	go func() {
		var seen []int
		buf := make([]byte, size)
		for {
			if _, err := b.Read(buf); err != nil {
				got <- seen // the deadline
				return
			}
			seen = append(seen, int(binary.BigEndian.Uint32(buf)))
		}
	}()
	buf := make([]byte, size)
	for i := range n {
		binary.BigEndian.PutUint32(buf, uint32(i))
		if _, err := a.Write(buf); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			time.Sleep(pause)
		}
	}
	if err := b.SetReadDeadline(time.Now().Add(150 * ms)); err != nil {
		t.Fatal(err)
	}
	return <-got
}

func TestLoss(t *testing.T) {
	const n, loss = 20000, 0.01
	var before []int
	for range 2 {
		p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 20 * ms, Loss: loss}, Seed: 7})
		a, b := sockets(t, p, false)
		seen := stream(t, a, b, n, 100, ms/2)
		for i := 1; i < len(seen); i++ {
			if seen[i] <= seen[i-1] {
				t.Fatalf("packet %d came after %d", seen[i], seen[i-1])
			}
		}
		gone := float64(n - len(seen))
		if spread := 5 * math.Sqrt(n*loss*(1-loss)); math.Abs(gone-n*loss) > spread {
			t.Errorf("%.0f packets of %d were lost, want %.0f +- %.0f", gone, n, n*loss, spread)
		}
		c, _ := counters(t, p)
		// Packets of the namespace to its neighbours count, too.
		if c.Lost < uint64(gone) || c.Lost > uint64(gone)+3 || c.Unwanted() > 0 || c.PacketsIn != c.Packets+c.Lost {
			t.Errorf("counters %+v, %.0f lost", c, gone)
		}
		before = append(before, len(seen))
	}
	t.Logf("%v of %d came", before, n)
}

func TestJitterKeepsOrder(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 5 * ms, Jitter: 10 * ms}})
	a, b := sockets(t, p, false)
	seen := stream(t, a, b, 2000, 100, ms)
	for i, n := range seen {
		if i != n {
			t.Fatalf("packet %d came as the %d.", n, i)
		}
	}
	if len(seen) != 2000 {
		t.Errorf("%d of 2000 packets came", len(seen))
	}
}

func TestRateAndBuffer(t *testing.T) {
	// The sender needs a CPU every 25 ms, or the buffer runs empty.
	for range 4 {
		err := rateAndBuffer(t)
		if err == nil {
			return
		}
		t.Logf("measured again: %v", err)
	}
	t.Error("the rate is not what was asked for")
}

func rateAndBuffer(t *testing.T) error {
	const rate, buffer = 2_000_000, 50_000
	p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 10 * ms, Rate: rate, Buffer: buffer}})
	a, b := sockets(t, p, true)
	done := make(chan []int)
	go func() { done <- stream(t, a, b, 4000, 1000, 15*ms) }() // 3 MB/s for 1.2 s
	time.Sleep(200 * ms)
	before, _ := counters(t, p)
	begin := time.Now()
	time.Sleep(800 * ms)
	after, _ := counters(t, p)
	got := float64(after.Bytes-before.Bytes) / time.Since(begin).Seconds() / rate
	<-done
	c, _ := counters(t, p)
	t.Logf("rate %.4f, %+v", got, c)
	if c.Dropped < 500 || c.MostQueue > buffer || c.MostQueue < buffer-1100 {
		return fmt.Errorf("counters %+v, want a full buffer and packets dropped at it", c)
	}
	if math.Abs(got-1) > 0.01 {
		return fmt.Errorf("the rate is %.4f of what was asked for", got)
	}
	return nil
}

// TCP runs at a distance: no segment is lost or damaged, over IPv4 and IPv6, with offload and without.
func TestTCP(t *testing.T) {
	for name, to := range map[string]string{"IPv4": "10.98.0.2:5001", "IPv6": "[fd00:98::2]:5001"} {
		t.Run(name, func(t *testing.T) {
			const each = 15_000_000
			p := testutil.MustDistantPair(t, relay.RoundTrip(20*ms))
			rx, err := testbed.StartReceiver(p.B, testbed.ReceiverConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer rx.Close()
			tx, err := testbed.StartSender(p.A, testbed.SenderConfig{To: to, Bytes: each, Connections: 2, Congestion: "cubic"})
			if err != nil {
				t.Fatal(err)
			}
			begin, err := tx.Start()
			if err != nil {
				t.Fatal(err)
			}
			for rx.Bytes(0, testbed.Now()) < 2*each {
				if testbed.Now().Sub(begin) > 5*time.Second {
					t.Fatalf("%.0f of %d bytes came in 5 s", rx.Bytes(0, testbed.Now()), 2*each)
				}
				time.Sleep(10 * ms)
			}
			took := testbed.Now().Sub(begin)
			report, err := tx.Stop()
			if err != nil {
				t.Fatal(err)
			}
			c, back := counters(t, p)
			t.Logf("%.0f MB/s, %d retransmits, late %v mean, %v most", 2*each/1e6/took.Seconds(), report.Retransmits(), c.MeanLate, c.MostLate)
			if c.Unwanted()+back.Unwanted() > 0 || c.Dropped+c.Lost > 0 {
				t.Errorf("counters %+v", c)
			}
			for _, conn := range report.Conns {
				// TCP's clock is that of its last packet, cut to microseconds at both ends.
				if conn.MinRTTMicros < 19990 || conn.MinRTTMicros > 21000 {
					t.Errorf("least round trip %d us, want 20 ms", conn.MinRTTMicros)
				}
			}
			if c.PacketsIn < 2*each/1460 || c.Chunks > c.PacketsIn/2 {
				t.Errorf("%d packets in %d chunks for %d bytes", c.PacketsIn, c.Chunks, 2*each)
			}
		})
	}
}

func TestSet(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.Config{})
	a, b := sockets(t, p, false)
	if seen := stream(t, a, b, 100, 100, 0); len(seen) != 100 {
		t.Errorf("%d of 100 packets came", len(seen))
	}
	if err := p.Relay.Set(relay.Config{AtoB: relay.Path{Loss: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if seen := stream(t, a, b, 100, 100, 0); len(seen) != 0 {
		t.Errorf("%d packets came although all are lost", len(seen))
	}
	if err := p.Relay.Set(relay.Config{AtoB: relay.Path{Loss: 2}}); err == nil {
		t.Error("a loss of 2 was taken")
	}
	if err := p.Relay.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := p.Relay.Counters(); err == nil {
		t.Error("a closed relay answers")
	}
}
