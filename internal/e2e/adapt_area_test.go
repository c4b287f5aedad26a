package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// Under a limit on prefixes netnice finds each host that gets packets, and gives it a rate of its own. No host's
// limit is left when the limit on the prefixes ends.
func TestAdaptPrefixes(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adaptation TestAdaptArea and internal/daemon TestAdaptAreaOutlivesTheDaemon")
	t.Parallel()
	const capacity = 400e3
	way := relay.Path{Delay: 5 * time.Millisecond, Rate: capacity, Buffer: 30e3}
	p := testutil.MustDistantPair(t, relay.Config{AtoB: way, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
	const prefixes, own4, own6 = "10.98.0.96/30,fd00:98::60/126", "10.98.0.97", "fd00:98::61"
	moreAddresses(t, p.B, own4, own6)
	p.B4, p.B6 = netip.MustParseAddr(own4), netip.MustParseAddr(own6)
	s := newStage(t)
	f := newInboundFrom(s, p, newNetNS(t))
	list := func() (got api.AdaptList) {
		t.Helper()
		r := s.netnice("adapt", "--json")
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 {
			t.Fatalf("netnice adapt: %v: %v", err, r)
		}
		return got
	}
	follow := func(args ...string) {
		t.Helper()
		if r := s.run(s.command(append([]string{"adapt", prefixes}, args...)...), p.A); r.code != 0 || !strings.Contains(r.out, "10.98.0.96/30") {
			t.Fatal(r)
		}
	}
	follow()
	if got := list(); len(got.Areas) != 1 || len(got.Adapted) != 0 {
		t.Errorf("nothing is sent yet: %+v", got)
	}
	v4, v6 := f.datagramsTo(6001, 1000, 2*capacity, false, nil), f.datagramsTo(6002, 1000, 2*capacity, true, nil)
	f.assertWithin("both hosts are followed", 20*time.Second, func() bool { return len(list().Adapted) == 2 })
	time.Sleep(16 * time.Second)
	f.judge(testbed.Now(), 3*time.Second, func(from, to testbed.Instant) error {
		f.until(from)
		before, _, err := p.Relay.Counters()
		if err != nil {
			return err
		}
		one, _ := v4.rate(to.Sub(from))
		after, _, err := p.Relay.Counters()
		if err != nil {
			return err
		}
		lost := float64(after.Dropped-before.Dropped) / max(float64(after.PacketsIn-before.PacketsIn), 1)
		two, _ := v6.rate(time.Second)
		t.Logf("%.3f and %.3f of the path, %.4f lost", one/capacity, two/capacity, lost)
		if lost > 0.05 || one < 0.25*capacity || two < 0.25*capacity {
			return fmt.Errorf("%.3f and %.3f of the path, %.3f lost", one/capacity, two/capacity, lost)
		}
		return nil
	})
	follow("off")
	if got := list(); len(got.Areas)+len(got.Adapted) != 0 {
		t.Errorf("ended, and there are %+v", got)
	}
	for _, n := range s.list().Nodes {
		if n.Subject.Kind == api.KindTo {
			t.Errorf("it is still there: %+v", n)
		}
	}
}

// One socket sends to many hosts in turn: netnice finds each host.
func TestAdaptManyByOneSocket(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adaptation TestAdaptArea")
	t.Parallel()
	const each, prefixes = 8, "10.98.0.128/28,fd00:98::80/124"
	p := testutil.MustPair(t)
	hosts := map[bool][]netip.AddrPort{}
	for i := byte(1); i <= each; i++ {
		v4, v6 := netip.AddrFrom4([4]byte{10, 98, 0, 128 + i}), netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x98, 15: 0x80 + i})
		moreAddresses(t, p.B, v4.String(), v6.String())
		hosts[false], hosts[true] = append(hosts[false], netip.AddrPortFrom(v4, 9)), append(hosts[true], netip.AddrPortFrom(v6, 9))
	}
	s := newStage(t)
	f := newInboundFrom(s, p, newNetNS(t))
	end := make(chan struct{})
	var senders sync.WaitGroup
	defer senders.Wait()
	defer close(end)
	for v6, hosts := range hosts {
		var socket *net.UDPConn
		err := p.A.Do(func() (err error) {
			socket, err = net.ListenUDP(map[bool]string{false: "udp4", true: "udp6"}[v6], nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		senders.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				case <-tick.C:
					_, _ = socket.WriteToUDPAddrPort(make([]byte, 100), hosts[i%each]) // refused: no socket there
				}
			}
		})
	}
	if r := s.run(s.command("adapt", prefixes), p.A); r.code != 0 {
		t.Fatal(r)
	}
	f.assertWithin("all are followed", 6*time.Second, func() bool {
		var got api.AdaptList
		r := s.netnice("adapt", "--json")
		return r.code == 0 && json.Unmarshal([]byte(r.out), &got) == nil && len(got.Adapted) == 2*each
	})
	if r := s.run(s.command("adapt", prefixes, "off"), p.A); r.code != 0 {
		t.Fatal(r)
	}
}

// A rule has netnice follow the paths to all hosts of a prefix. Without the rule netnice follows them no more.
func TestAdaptByRule(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestAdaptByRules")
	t.Parallel()
	const capacity, own4, own6 = 400e3, "10.98.0.101", "fd00:98::65"
	way := relay.Path{Delay: 5 * time.Millisecond, Rate: capacity, Buffer: 30e3}
	p := testutil.MustDistantPair(t, relay.Config{AtoB: way, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
	moreAddresses(t, p.B, own4, own6)
	p.B4, p.B6 = netip.MustParseAddr(own4), netip.MustParseAddr(own6)
	s := newStage(t)
	dir, err := os.MkdirTemp(work, "rules-")
	if err != nil {
		t.Fatal(err)
	}
	s.config = dir
	r := &ruled{field: &field{stage: s, Pair: p}, dir: dir}
	r.write("[[rule]]\nname = 'paths'\nto = ['10.98.0.100/30', 'fd00:98::64/126']\nprotocol = 'udp'\nadapt = true\nup = '200kB/s'\n")
	f := newInboundFrom(s, p, p.A)
	d := f.datagramsTo(6001, 1000, 2*capacity, true, nil)
	f.assertWithin("its host is followed", 20*time.Second, func() bool { return strings.Contains(s.netnice("adapt").out, own6) })
	time.Sleep(6 * time.Second) // netnice measures other senders for the first time after three
	f.judge(testbed.Now(), 2*time.Second, func(from, to testbed.Instant) error {
		f.until(from)
		perSec, _ := d.rate(to.Sub(from))
		t.Logf("%.3f of the rule's most", perSec/200e3)
		return compare("to the host", perSec, 200e3, 0.05)
	})
	if r := s.netnice("rules", "list"); !strings.Contains(r.out, "adapt 50%, at most 200 kB/s") {
		t.Error(r)
	}
	s.refused(s.run(s.command("adapt", "10.98.0.100/30,fd00:98::64/126", "off"), p.A), `rule "paths"`, "change it there")
	r.write("")
	s.must("rules", "reload")
	f.assertWithin("it ends with the rule", 5*time.Second, func() bool { return !strings.Contains(s.netnice("adapt").out, own6) })
	for _, n := range s.list().Nodes {
		if n.Subject.Kind == api.KindTo {
			t.Errorf("it is still there: %+v", n)
		}
	}
}
