package probe_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

func TestReachFallsBack(t *testing.T) {
	p := testutil.MustPair(t)
	cfg := probe.Config{To: p.B4, Port: probe.DefaultPort, Namespace: p.A.Path()}
	kind := func(kinds ...probe.Kind) probe.Kind {
		t.Helper()
		prober, err := probe.Reach(t.Context(), cfg, kinds)
		if err != nil {
			t.Fatal(err)
		}
		defer prober.Close()
		return prober.Kind()
	}
	if k := kind(probe.UDP, probe.Timestamp, probe.Echo); k != probe.Timestamp {
		t.Errorf("without a reflector: %s", k)
	}
	cfg.Port = reflector(t, p, false).Port()
	if k := kind(probe.UDP, probe.Timestamp, probe.Echo); k != probe.UDP {
		t.Errorf("with a reflector: %s", k)
	}
	if err := p.B.Sysctl("net/ipv4/icmp_echo_ignore_all", "1"); err != nil {
		t.Fatal(err)
	}
	if k := kind(probe.Echo, probe.Timestamp); k != probe.Timestamp {
		t.Errorf("where echo is refused: %s", k)
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	p := testutil.MustDistantPair(t, relay.Config{BtoA: relay.Path{Loss: 1}})
	cfg := probe.Config{To: p.B4, Port: probe.DefaultPort, Namespace: p.A.Path(), Timeout: 20 * time.Second}
	begin := time.Now()
	_, err := probe.Reach(t.Context(), cfg, []probe.Kind{probe.UDP, probe.Timestamp, probe.Echo})
	if d := time.Since(begin); d < 7*time.Second || d > 12*time.Second { // before that, answers might only be late
		t.Errorf("it took %v", d)
	}
	var silent *probe.UnreachableError
	if !errors.As(err, &silent) || !errors.Is(err, probe.ErrSilent) || len(silent.Attempts) != 3 {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{p.B4.String(), "udp", "icmp-timestamp", "icmp-echo"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if !strings.Contains(silent.Hint(), "netnice probe --reflect") {
		t.Errorf("hint %q", silent.Hint())
	}
}

// A host behind a queue of four seconds is not silent. Reach does not wait longer for a kind that has no answer by
// then.
func TestReachWaits(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestReachEnds; a late answer is tested here only")
	t.Parallel()
	p := testutil.MustDistantPair(t, relay.RoundTrip(4300*time.Millisecond))
	if err := p.B.Sysctl("net/ipv4/icmp_echo_ignore_all", "1"); err != nil {
		t.Fatal(err)
	}
	cfg := probe.Config{To: p.B4, Port: reflector(t, p, false).Port(), Namespace: p.A.Path(), Timeout: 20 * time.Second}
	for _, kinds := range [][]probe.Kind{{probe.Timestamp, probe.Echo}, {probe.UDP}} {
		prober, err := probe.Reach(t.Context(), cfg, kinds)
		if err != nil {
			t.Errorf("%s: %v", kinds, err)
			continue
		}
		if prober.Kind() != kinds[0] || prober.RoundTrip() < 4300*time.Millisecond || prober.RoundTrip() > 6*time.Second {
			t.Errorf("%s: %s after %v", kinds, prober.Kind(), prober.RoundTrip())
		}
		if c := prober.Counters(); c.SentBytes > 10*64 {
			t.Errorf("%s: it took %+v", kinds, c)
		}
		prober.Close()
	}
}

// A caller that waits for an answer can be cancelled.
func TestReachEnds(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.Config{BtoA: relay.Path{Loss: 1}})
	cfg := probe.Config{To: p.B4, Port: probe.DefaultPort, Namespace: p.A.Path(), Timeout: 20 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := probe.Reach(ctx, cfg, []probe.Kind{probe.UDP, probe.Timestamp, probe.Echo})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

// The test measures with each kind of packet, over a path of 20 Mbit/s and 10 ms.
func TestMeasure(t *testing.T) {
	const rate = 2_500_000
	path := relay.Path{Delay: 5 * time.Millisecond, Rate: rate}
	p := testutil.MustDistantPair(t, relay.Config{AtoB: path, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
	for _, k := range testutil.Subset(kinds, 0, 4) {
		t.Run(k.name, func(t *testing.T) {
			steps := map[string]bool{}
			r, err := probe.Measure(t.Context(), open(t, p, k.kind, k.v6), probe.Options{
				Progress: func(p probe.Progress) { steps[p.Step] = true },
			})
			if err != nil {
				t.Fatal(err)
			}
			if e := r.Capacity.BytesPerSec/rate - 1; math.Abs(e) > 0.1 || r.Capacity.AtLeast {
				t.Errorf("capacity %+v", r.Capacity)
			}
			if e := r.Available.BytesPerSec/rate - 1; math.Abs(e) > 0.25 {
				t.Errorf("available %+v", r.Available)
			}
			if r.RoundTrip < 10*time.Millisecond || r.SentBytes > probe.DefaultBytes || r.Took > probe.DefaultDuration+10*time.Second {
				t.Errorf("%+v", r)
			}
			if !steps["reaching"] || !steps["capacity"] || !steps["available"] {
				t.Errorf("told of %v", steps)
			}
			var picture, text strings.Builder
			if err := r.Train.SVG(&picture, "a < b"); err != nil {
				t.Fatal(err)
			}
			if err := r.Train.Draw(&text, 80); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(picture.String(), "a &lt; b") || strings.Count(picture.String(), "<circle") < 2*8 {
				t.Errorf("picture %.300s", picture.String())
			}
			if strings.Count(text.String(), "o") < 8 || strings.Count(text.String(), "\n") != 15 {
				t.Errorf("plot\n%s", text.String())
			}
		})
	}
}

// A path that is faster than the machine sends: packets go as fragments, each counted by its IP
// bytes, and are answered.
func TestMeasureInFragments(t *testing.T) {
	p := testutil.MustPair(t)
	sent := func() float64 {
		link, err := p.A.Netlink().LinkByName(testbed.Device)
		if err != nil {
			t.Fatal(err)
		}
		const header = 14 // of Ethernet
		s := link.Attrs().Statistics
		return float64(s.TxBytes) - header*float64(s.TxPackets)
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			prober := open(t, p, k.kind, k.v6)
			var (
				r      probe.Result
				before float64
			)
			// On a busy machine single packets may have gone faster than those in fragments.
			for try := 0; r.Fragments == 0 && try < 4; try++ {
				var err error
				before = sent()
				if r, err = probe.Measure(t.Context(), prober, probe.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%.0f MB/s, at least: %v; %d fragments, %d lost", r.Capacity.BytesPerSec/1e6, r.Capacity.AtLeast, r.Fragments, r.Lost)
			if r.Fragments == 0 || r.Size != 1500 || r.Capacity.BytesPerSec < 20e6 {
				t.Errorf("%+v", r.Capacity)
			}
			if r.Lost > 20 {
				t.Errorf("%d packets were not answered", r.Lost)
			}
			if off := float64(r.SentBytes)/(sent()-before) - 1; math.Abs(off) > 0.02 {
				t.Errorf("%d bytes were sent, it says: off by %.3f", r.SentBytes, off)
			}
		})
	}
}

// Connections reports the rate of a running connection through a path of 20 Mbit/s.
func TestConnections(t *testing.T) {
	const rate = 2_500_000
	p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 5 * time.Millisecond, Rate: rate}, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
	for _, v6 := range testutil.Subset([]bool{false, true}, 1) {
		to := p.B4
		if v6 {
			to = p.B6
		}
		none, err := probe.Connections(t.Context(), p.A.Path(), to)
		if err != nil || none.Connections != 0 {
			t.Fatalf("before: %+v, %v", none, err)
		}
		end := bulk(t, p, to)
		time.Sleep(2 * time.Second)
		c, err := probe.Connections(t.Context(), p.A.Path(), to)
		end()
		if err != nil || c.Connections != 1 || c.AppLimited != 0 {
			t.Fatalf("%s: %+v, %v", to, c, err)
		}
		if c.DeliveryBytesPerSec < 0.5*rate || c.DeliveryBytesPerSec > 1.3*rate || c.LeastRTT < 10*time.Millisecond || c.LeastRTT > 60*time.Millisecond {
			t.Errorf("%s: %+v", to, c)
		}
	}
}

// bulk sends by TCP from A to an address of B until end is called.
func bulk(t *testing.T, p *testbed.Pair, to netip.Addr) (end func()) {
	t.Helper()
	var l net.Listener
	err := p.B.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	err = p.A.Do(func() (err error) {
		conn, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		buf := make([]byte, 64<<10)
		for {
			if _, err := other.Read(buf); err != nil {
				return
			}
		}
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		buf := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}()
	return func() {
		conn.Close()
		other.Close()
		l.Close()
		<-ended
		<-ended
	}
}
