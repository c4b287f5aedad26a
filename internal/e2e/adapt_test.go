package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// adapted returns the one host whose path netnice follows.
func (s *stage) adapted() api.Adapted {
	s.t.Helper()
	r := s.netnice("adapt", "--json")
	var list api.AdaptList
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || r.code != 0 || len(list.Adapted) != 1 {
		s.t.Fatalf("netnice adapt: %v: %v", err, r)
	}
	return list.Adapted[0]
}

// A flood of datagrams crosses a path with a bottleneck. The flood uses the path and loses hardly anything in it.
// The same holds under the next daemon. After the limit is lifted, the losses are those of before.
func TestAdapt(t *testing.T) {
	t.Parallel()
	for _, v6 := range testutil.Subset([]bool{false, true}, 1) {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) {
			t.Parallel()
			const capacity = 400e3
			way := relay.Path{Delay: 5 * time.Millisecond, Rate: capacity, Buffer: 30e3}
			p := testutil.MustDistantPair(t, relay.Config{AtoB: way, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
			const own4, own6 = "10.98.0.90", "fd00:98::5a"
			moreAddresses(t, p.B, own4, own6)
			p.B4, p.B6 = netip.MustParseAddr(own4), netip.MustParseAddr(own6)
			s := newStage(t)
			home := newNetNS(t)
			f := newInboundFrom(s, p, home)
			d := f.datagramsTo(6001, 1000, 4*capacity, v6, nil)
			dropped := func(over time.Duration) (part float64) {
				before, _, err := p.Relay.Counters()
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(over)
				after, _, err := p.Relay.Counters()
				if err != nil {
					t.Fatal(err)
				}
				return float64(after.Dropped-before.Dropped) / max(float64(after.PacketsIn-before.PacketsIn), 1)
			}
			if part := dropped(time.Second); part < 0.5 {
				t.Fatalf("without a limit %.2f of what is sent is lost", part)
			}
			host := p.B4.String()
			if v6 {
				host = p.B6.String()
			}
			follow := func(args ...string) result { return s.run(s.command(append([]string{"adapt", host}, args...)...), p.A) }
			if r := follow(); r.code != 0 || !strings.Contains(r.out, "follows the path") {
				t.Fatal(r)
			}
			holds := func(when string) {
				t.Helper()
				f.judge(testbed.Now(), 3*time.Second, func(from, to testbed.Instant) error {
					f.until(from)
					before, _, err := p.Relay.Counters()
					if err != nil {
						return err
					}
					perSec, _ := d.rate(to.Sub(from))
					after, _, err := p.Relay.Counters()
					lost := float64(after.Dropped-before.Dropped) / max(float64(after.PacketsIn-before.PacketsIn), 1)
					t.Logf("%s: %.3f of the path used, %.4f lost, %+v", when, perSec/capacity, lost, s.adapted())
					if err == nil && (perSec < 0.75*capacity || lost > 0.1) { // without the limit half of it is lost
						err = fmt.Errorf("%s: %.3f of the path, %.3f lost", when, perSec/capacity, lost)
					}
					return err
				})
			}
			time.Sleep(5 * time.Second)
			holds("followed")
			if a := s.adapted(); a.Mode != "delay" || a.BaseNS < 9e6 || a.CapacityBytesPerSec < 0.8*capacity || a.CapacityBytesPerSec > 1.2*capacity {
				t.Errorf("%+v", a)
			}
			f.daemon.kill()
			perSec, _ := d.rate(2 * time.Second)
			if perSec > 1.02*capacity || perSec < 0.05*capacity {
				t.Errorf("without a daemon %.3f of the path", perSec/capacity)
			}
			s.daemonIn(home)
			time.Sleep(5 * time.Second)
			holds("taken up again")
			if r := follow("off"); r.code != 0 {
				t.Fatal(r)
			}
			time.Sleep(300 * time.Millisecond)
			if part := dropped(time.Second); part < 0.5 {
				t.Errorf("lifted, %.2f of what is sent is lost", part)
			}
			for _, n := range s.list().Nodes {
				if n.Subject.Kind == api.KindTo {
					t.Errorf("it is still there: %+v", n)
				}
			}
		})
	}
}

// A sender loses next to nothing from the first datagram on, at its begin and again after a pause: the queue exists,
// and netnice knows the path's capacity.
func TestAdaptFromTheFirst(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adapt TestBeginsAfterAPause, TestTooFastFromTheStart")
	t.Parallel()
	const capacity, own4, own6 = 400e3, "10.98.0.106", "fd00:98::6a"
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) {
			t.Parallel()
			way := relay.Path{Delay: 10 * time.Millisecond, Rate: capacity, Buffer: 20e3}
			p := testutil.MustDistantPair(t, relay.Config{AtoB: way, BtoA: relay.Path{Delay: 10 * time.Millisecond}})
			moreAddresses(t, p.B, own4, own6)
			p.B4, p.B6 = netip.MustParseAddr(own4), netip.MustParseAddr(own6)
			s := newStage(t)
			f := newInboundFrom(s, p, newNetNS(t))
			host := p.B4.String()
			if v6 {
				host = p.B6.String()
			}
			if r := s.run(s.command("adapt", host), p.A); r.code != 0 {
				t.Fatal(r)
			}
			counters := func() (dropped, came uint64) {
				t.Helper()
				c, _, err := p.Relay.Counters()
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range s.list().Nodes {
					dropped += n.Up.Dropped
				}
				return dropped + c.Dropped, c.PacketsIn
			}
			port := 6001
			begins := func(when string) error {
				before, from := counters()
				d := f.datagramsTo(port, 1000, 5*capacity, v6, nil)
				port++
				time.Sleep(3 * time.Second)
				after, to := counters()
				d.tx.close()
				lost, used := float64(after-before)/max(float64(to-from), 1), float64(to-from)*1000/(3*capacity)
				t.Logf("%s %.4f of what is sent in 3 s is lost, %.3f of the path used", when, lost, used)
				if lost > 0.03 || used < 0.3 { // a flow without packets would show no loss either
					return fmt.Errorf("%s %.3f of what is sent in 3 s is lost, %.3f of the path used", when, lost, used)
				}
				return nil
			}
			f.judge(testbed.Now(), 11*time.Second, func(testbed.Instant, testbed.Instant) error {
				for _, when := range []string{"at first", "after a pause"} {
					if err := begins(when); err != nil {
						return err
					}
					time.Sleep(2500 * time.Millisecond)
				}
				return nil
			})
		})
	}
}

// cubicBefore starts a TCP connection that fills the path for two seconds, and sends until the test ends.
func cubicBefore(t *testing.T, p *testbed.Pair) (*testbed.Receiver, *testbed.Sender) {
	t.Helper()
	rx, err := testbed.StartReceiver(p.B, testbed.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rx.Close() })
	tcp, err := testbed.StartSender(p.A, testbed.SenderConfig{To: netip.AddrPortFrom(p.B4, testbed.DefaultPort).String(), Congestion: "cubic"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	if _, err := tcp.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	return rx, tcp
}

// TCP has filled a short queue before the datagrams begin. The few probes that get through the queue measure the
// path's capacity, so the datagrams do not begin at next to nothing.
func TestAdaptBesideTCP(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adapt TestBeginsBehindABucket, TestWhatYieldsHasItsShare")
	t.Parallel()
	const capacity, own4, own6 = 1.25e6, "10.98.0.110", "fd00:98::110"
	p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 2 * time.Millisecond, Rate: capacity, Buffer: 8e3}, BtoA: relay.Path{Delay: 2 * time.Millisecond}})
	moreAddresses(t, p.B, own4, own6)
	s := newStage(t)
	newInboundFrom(s, p, newNetNS(t))
	cubicBefore(t, p)
	r := s.run(s.command("adapt", own4), p.A)
	var rate float64
	var unit string
	_, begins, _ := strings.Cut(r.out, " follows the path: ") // starting rate to own4 in namespace A
	if _, err := fmt.Sscanf(begins, "%f %s to begin with", &rate, &unit); r.code != 0 || err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	rate *= map[string]float64{"B/s": 1, "kB/s": 1e3, "MB/s": 1e6}[unit]
	t.Logf("it begins with %.3f of the path", rate/capacity)
	if rate < 0.08*capacity || rate > 1.1*capacity {
		t.Errorf("it begins with %.0f bytes/s", rate)
	}
	if r := s.run(s.command("adapt", own4, "off"), p.A); r.code != 0 {
		t.Fatal(r)
	}
}

// In a queue of few packets that TCP fills, datagrams leave by a window: they arrive, and both flows get a part. The
// window ends with the TCP flow. It ends also with the daemon, whose limit stays.
func TestAdaptShortQueue(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adapt TestWindowInAShortQueue")
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) {
			t.Parallel()
			const capacity, own4, own6 = 125e3, "10.98.0.111", "fd00:98::6f:1"
			p := testutil.MustDistantPair(t, relay.Config{AtoB: relay.Path{Delay: 10 * time.Millisecond, Rate: capacity, Buffer: 12e3}, BtoA: relay.Path{Delay: 10 * time.Millisecond}})
			moreAddresses(t, p.B, own4, own6)
			s := newStage(t)
			f := newInboundFrom(s, p, newNetNS(t))
			rx, tcp := cubicBefore(t, p)
			p.B4, p.B6 = netip.MustParseAddr(own4), netip.MustParseAddr(own6)
			host := p.B4.String()
			if v6 {
				host = p.B6.String()
			}
			if r := s.run(s.command("adapt", host), p.A); r.code != 0 {
				t.Fatal(r)
			}
			d := f.datagramsTo(6001, 1000, 4*capacity, v6, nil)
			f.assertWithin("a window", 40*time.Second, func() bool { return s.adapted().WindowPackets > 0 })
			time.Sleep(4 * time.Second)
			f.judge(testbed.Now(), 8*time.Second, func(from, to testbed.Instant) error {
				f.until(from)
				ours, lost := d.rate(to.Sub(from))
				theirs := rx.Goodput(0, from, to) * 1500 / 1448
				t.Logf("%.3f of the path, TCP %.3f, %.3f lost, %+v", ours/capacity, theirs/capacity, lost, s.adapted())
				if ours < 0.3*capacity || theirs < 0.25*capacity || lost > 0.12 {
					return fmt.Errorf("%.3f of the path, TCP %.3f, %.3f lost", ours/capacity, theirs/capacity, lost)
				}
				return nil
			})
			if v6 {
				f.daemon.kill()
				perSec, _ := d.rate(4 * time.Second)
				if t.Logf("without a daemon %.3f of the path", perSec/capacity); perSec > 0.75*capacity || perSec < 0.2*capacity {
					t.Errorf("without a daemon %.3f of the path", perSec/capacity)
				}
				return
			}
			if err := tcp.Close(); err != nil {
				t.Fatal(err)
			}
			f.assertWithin("the window ends", 20*time.Second, func() bool { a := s.adapted(); return a.WindowPackets == 0 && a.Mode == "delay" })
			time.Sleep(4 * time.Second)
			f.judge(testbed.Now(), 4*time.Second, func(from, to testbed.Instant) error {
				f.until(from)
				alone, lost := d.rate(to.Sub(from))
				t.Logf("alone %.3f of the path, %.3f lost, %+v", alone/capacity, lost, s.adapted())
				if alone < 0.7*capacity || lost > 0.05 {
					return fmt.Errorf("alone %.3f of the path, %.3f lost", alone/capacity, lost)
				}
				return nil
			})
			if r := s.run(s.command("adapt", host, "off"), p.A); r.code != 0 {
				t.Fatal(r)
			}
		})
	}
}

func TestAdaptRefuses(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adaptation TestAdaptRefuses")
	t.Parallel()
	s := upStage(t)
	s.refused(s.netnice("adapt", "10.0.0.0/8:53"), "prefixes alone", "netnice adapt")
	s.refused(s.netnice("adapt", "10.0.0.0/8", "off"), "no limits follow", "netnice adapt")
	s.refused(s.netnice("adapt", "--to-all", "192.0.2.7", "off"), "takes no host", "netnice adapt 192.0.2.7")
	s.refused(s.netnice("adapt", "127.0.0.1"), "no address of another host", "netnice adapt")
	s.refused(s.netnice("adapt", "192.0.2.7", "--share", "5%"), "no share", "--share 50%")
	s.refused(s.netnice("adapt", "192.0.2.7", "on"), "is not off", "netnice adapt 192.0.2.7 off")
	s.refused(s.netnice("adapt", "192.0.2.7", "off"), "no limit follows", "netnice adapt")
	s.refused(s.asUser("adapt", "192.0.2.7"), "only the administrator", "sudo netnice adapt 192.0.2.7")
	// This host never answers.
	p := testutil.MustPair(t)
	begin := time.Now()
	r := s.run(s.command("adapt", "10.98.0.77"), p.A)
	s.refused(r, "answers to no probe packet", "netnice set --to 10.98.0.77")
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %v to say so", took)
	}
}

// A limit covers all protocols, and the UDP probes go to an address that is not the host's first. The probes are not
// charged to the limit that follows their result.
func TestAdaptChargesNoProbes(t *testing.T) {
	t.Parallel()
	for _, c := range testutil.Subset([]struct {
		name, own4, own6 string
		args             []string
		reflector        bool
	}{
		{name: "all protocols", own4: "10.98.0.108", own6: "fd00:98::6c", args: []string{"--tcp"}},
		{name: "by UDP", own4: "10.98.0.109", own6: "fd00:98::6d", args: []string{"--reflector", "7077"}, reflector: true},
	}, 0) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const capacity = 400e3
			way := relay.Path{Delay: 5 * time.Millisecond, Rate: capacity, Buffer: 30e3}
			p := testutil.MustDistantPair(t, relay.Config{AtoB: way, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
			moreAddresses(t, p.B, c.own4, c.own6)
			p.B4, p.B6 = netip.MustParseAddr(c.own4), netip.MustParseAddr(c.own6)
			s := newStage(t)
			f := newInboundFrom(s, p, newNetNS(t))
			if c.reflector {
				reflector := s.command("probe", "--reflect")
				if err := s.start(reflector, p.B); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = reflector.Process.Kill(), reflector.Wait() })
				time.Sleep(time.Second)
			}
			if r := s.run(s.command(append([]string{"adapt", c.own4}, c.args...)...), p.A); r.code != 0 {
				t.Fatal(r)
			}
			f.assertWithin("it is probed", 5*time.Second, func() bool { return s.adapted().ProbedBytes > 300 })
			for _, n := range s.list().Nodes {
				if n.Up.Bytes != 0 {
					t.Errorf("%s is charged %d bytes of probes", n.Subject, n.Up.Bytes)
				}
			}
			d := f.datagramsTo(6001, 1000, 2*capacity, false, nil)
			time.Sleep(6 * time.Second)
			f.judge(testbed.Now(), 3*time.Second, func(from, to testbed.Instant) error {
				f.until(from)
				perSec, _ := d.rate(to.Sub(from))
				a := s.adapted()
				t.Logf("%.3f of the path used, %+v", perSec/capacity, a)
				if perSec < 0.75*capacity || a.QueueNS > 60e6 || a.Mode != "delay" {
					return fmt.Errorf("%.3f of the path used, mode %s, %v in its queue", perSec/capacity, a.Mode, time.Duration(a.QueueNS))
				}
				return nil
			})
		})
	}
}
