package probe_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// reflector starts a reflector in B that serves until the test ends.
func reflector(t *testing.T, p *testbed.Pair, v6 bool) netip.AddrPort {
	t.Helper()
	at := netip.AddrPortFrom(p.B4, 0)
	if v6 {
		at = netip.AddrPortFrom(p.B6, 0)
	}
	var r *probe.Reflector
	err := p.B.Do(func() (err error) {
		r, err = probe.Listen(at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("reflector: %v", err)
		}
		r.Close()
	})
	return r.Addr()
}

func open(t *testing.T, p *testbed.Pair, kind probe.Kind, v6 bool) *probe.Prober {
	t.Helper()
	cfg := probe.Config{To: p.B4, Kind: kind, Namespace: p.A.Path()}
	if v6 {
		cfg.To = p.B6
	}
	if kind == probe.UDP {
		cfg.Port = reflector(t, p, v6).Port()
	}
	prober, err := probe.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := prober.Close(); err != nil {
			t.Error(err)
		}
	})
	return prober
}

var kinds = []struct {
	name string
	kind probe.Kind
	v6   bool
}{
	{"timestamp", probe.Timestamp, false},
	{"echo", probe.Echo, false},
	{"echo6", probe.Echo, true},
	{"udp", probe.UDP, false},
	{"udp6", probe.UDP, true},
}

func TestTrainIsAnswered(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond))
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			prober := open(t, p, k.kind, k.v6)
			const n, size = 30, 1000
			train, err := prober.Train(t.Context(), n, size, 100_000) // one each 10 ms
			if err != nil {
				t.Fatal(err)
			}
			late := 0
			for i, r := range train.Replies {
				if r.Lost || r.Seq != uint64(i) || r.Size != size {
					t.Fatalf("packet %d: %+v", i, r)
				}
				if r.RoundTrip() < 19*time.Millisecond {
					t.Errorf("packet %d came back after %v", i, r.RoundTrip())
				}
				if r.RoundTrip() > 40*time.Millisecond {
					late++
				}
				if (r.PeerNS != 0) != (k.kind == probe.UDP) {
					t.Errorf("packet %d: peer's time %d", i, r.PeerNS)
				}
			}
			if late > n/3 {
				t.Errorf("%d of %d came back after more than 40 ms", late, n)
			}
			span := time.Duration(train.Replies[n-1].SentNS - train.Replies[0].SentNS)
			if span < 285*time.Millisecond {
				t.Errorf("29 gaps of 10 ms took %v", span)
			}
			want := probe.Counters{Sent: n, Answered: n, SentBytes: n * size}
			if got := prober.Counters(); got != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		})
	}
}

func TestLostPacketsAreTold(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.Config{})
	prober := open(t, p, probe.Echo, true)
	if err := p.Relay.Set(relay.Config{AtoB: relay.Path{Loss: 1}}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	train, err := prober.Train(t.Context(), 5, 200, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range train.Replies {
		if !r.Lost || r.ReceivedNS != 0 {
			t.Errorf("packet %d: %+v", i, r)
		}
	}
	if d := time.Since(begin); d < probe.DefaultTimeout || d > 3*probe.DefaultTimeout {
		t.Errorf("told after %v", d)
	}
	if err := p.Relay.Set(relay.Config{}); err != nil {
		t.Fatal(err)
	}
	again, err := prober.Train(t.Context(), 1, 200, 0)
	if err != nil || again.Replies[0].Lost {
		t.Errorf("afterwards: %+v, %v", again, err)
	}
}

func TestPing(t *testing.T) {
	p := testutil.MustDistantPair(t, relay.RoundTrip(5*time.Millisecond))
	prober := open(t, p, probe.Timestamp, false)
	r, err := prober.Ping(t.Context())
	if err != nil || r.RoundTrip() < 5*time.Millisecond {
		t.Errorf("%+v, %v", r, err)
	}
	if err := p.Relay.Set(relay.Config{BtoA: relay.Path{Loss: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := prober.Ping(t.Context()); !errors.Is(err, probe.ErrSilent) {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestNoReflector(t *testing.T) {
	p := testutil.MustPair(t)
	for _, to := range []netip.Addr{p.B4, p.B6} {
		_, err := probe.Open(t.Context(), probe.Config{
			To: to, Port: 9, Kind: probe.UDP, Namespace: p.A.Path(), Timeout: 100 * time.Millisecond,
		})
		if !errors.Is(err, probe.ErrSilent) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestRefusedConfigurations(t *testing.T) {
	for _, c := range []probe.Config{
		{To: netip.MustParseAddr("::1"), Kind: probe.Timestamp},
		{To: netip.MustParseAddr("127.0.0.1"), Kind: probe.UDP},
		{To: netip.MustParseAddr("224.0.0.1"), Kind: probe.Echo},
		{To: netip.MustParseAddr("127.0.0.1"), Kind: "pigeon"},
		{Kind: probe.Echo},
	} {
		if p, err := probe.Open(t.Context(), c); err == nil {
			p.Close()
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestSizesAreRefused(t *testing.T) {
	p := testutil.MustPair(t)
	for _, k := range kinds {
		prober := open(t, p, k.kind, k.v6)
		for _, size := range []int{0, prober.MinSize() - 1, 1501, probe.MaxSize + 1} {
			if _, err := prober.Send(size, nil); err == nil {
				t.Errorf("%s: %d bytes were sent", k.name, size)
			}
		}
		if n, err := prober.Largest(); err != nil || n != 1500 {
			t.Errorf("%s: largest %d, %v", k.name, n, err)
		}
		if c := prober.Counters(); c.Sent != 0 || c.SentBytes != 0 {
			t.Errorf("%s: counted %+v", k.name, c)
		}
	}
}

func TestClosedProber(t *testing.T) {
	p := testutil.MustPair(t)
	prober := open(t, p, probe.Echo, false)
	if err := prober.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := prober.Send(100, nil); err == nil {
		t.Error("sent after Close")
	}
}
