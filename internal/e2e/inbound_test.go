package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
)

// inbound is a pair of namespaces in which B sends and A receives, so the tests limit the ingress of A. The daemon
// is in A, too, or in a third.
type inbound struct {
	*field
	daemon    *daemon
	rx        *testbed.Receiver // in A
	tolerance float64           // tolerance of the ingress rate, as a part of the limit
}

// newInbound makes an inbound around a stage, with that pair. The receiver listens on ports 5001..5016.
func newInbound(s *stage, p *testbed.Pair) *inbound {
	s.t.Helper()
	return newInboundFrom(s, p, p.A)
}

// newInboundFrom is newInbound with the daemon in a namespace of its own.
func newInboundFrom(s *stage, p *testbed.Pair, home *testbed.NetNS) *inbound {
	s.t.Helper()
	f := &inbound{field: &field{stage: s, Pair: p, ports: testbed.DefaultPort - 1}, tolerance: downTolerance}
	f.daemon = s.daemonIn(home)
	f.rx = f.reader(0)
	f.field.rx = f.rx
	return f
}

// reader starts a receiver process in A, as a user if uid is not 0.
func (f *inbound) reader(uid uint32) *testbed.Receiver {
	f.t.Helper()
	cfg := testbed.ReceiverConfig{Interval: 10 * time.Millisecond, UID: uid}
	for i := range uint16(readers) {
		cfg.Ports = append(cfg.Ports, testbed.Port{Number: f.ports + 1 + i})
	}
	return f.receiver(f.A, cfg)
}

// sendTo starts a process in B that sends to a port in A.
func (f *inbound) sendTo(port uint16, v6 bool, cfg testbed.SenderConfig) *testbed.Sender {
	f.t.Helper()
	cfg.To = fmt.Sprintf("%s:%d", f.A4, port)
	if v6 {
		cfg.To = fmt.Sprintf("[%s]:%d", f.A6, port)
	}
	x := f.startSender(f.B, cfg)
	if _, err := x.Start(); err != nil {
		f.t.Fatal(err)
	}
	return x
}

// perByte6 is perByte for IPv6.
const perByte6 = 1 + 72.0/1428

// receives checks the rate at which payload arrives at ports, together, against a limit in IP bytes.
func (f *inbound) receives(what string, after testbed.Instant, limit, per float64, ports ...uint16) {
	f.t.Helper()
	f.judge(after, span, func(from, to testbed.Instant) error {
		got := f.arrived(from, to, ports...) * per
		f.t.Logf("%s: %.4f of %.0f bytes/s", what, got/limit, limit)
		return compare(what, got, limit, f.tolerance)
	})
}

// letThrough returns the rate that netnice itself counts for a subject, over a span from now.
func (f *inbound) letThrough(subject string) float64 {
	f.t.Helper()
	read := func() (uint64, time.Time) {
		list := f.list()
		for _, n := range list.Nodes {
			if n.Subject.String() == subject {
				return n.Down.Bytes, list.Time
			}
		}
		f.t.Fatalf("%s is not in %+v", subject, list.Nodes)
		return 0, list.Time
	}
	before, from := read()
	time.Sleep(span)
	after, to := read()
	return float64(after-before) / to.Sub(from).Seconds()
}

// lost checks the number of segments that a sender had to send again, and its recent round trips.
func (f *inbound) lost(x *testbed.Sender, most int, queue time.Duration) {
	f.t.Helper()
	now := testbed.Now()
	rtts := x.RTT(now.Add(-time.Second), now)
	var sum time.Duration
	for _, r := range rtts {
		sum += r
	}
	infos, _, err := x.Info()
	if err != nil {
		f.t.Fatal(err)
	}
	again := 0
	for _, c := range infos {
		again += int(c.Retransmits)
	}
	mean := sum / time.Duration(max(len(rtts), 1))
	f.t.Logf("%d segments sent again, mean round trip %v", again, mean.Round(10*time.Microsecond))
	// TCP repeats a segment if its acknowledgement is 20 ms late.
	if paused, lost := cpus.paused(f.begun, now), cpus.lost(f.begun, now); again > most && again <= most+100 && (paused > 0 || lost > 0) {
		f.t.Logf("not judged: %d segments sent again, but for %v a processor let nobody wake up, and %d packets were dropped before they were received", again, paused, lost)
	} else if again > most {
		f.t.Errorf("%d segments sent again, want at most %d", again, most)
	}
	if excuse := cpus.excuse(now.Add(-time.Second), now); mean > queue && mean < 2*queue && excuse != "" {
		f.t.Logf("not judged: mean round trip %v, want at most %v, but %s", mean, queue, excuse)
	} else if mean > queue {
		f.t.Errorf("mean round trip %v, want at most %v", mean, queue)
	}
}

// devices lists the devices of A, with their settings.
func (f *inbound) devices() string {
	f.t.Helper()
	links, err := f.A.Netlink().LinkList()
	if err != nil {
		f.t.Fatal(err)
	}
	var b strings.Builder
	for _, l := range links {
		a := l.Attrs()
		fmt.Fprintf(&b, "%d %s %s mtu %d %v promisc %d\n", a.Index, a.Name, l.Type(), a.MTU, a.Flags, a.Promisc)
	}
	return b.String()
}

// join adds another pair of devices between the namespaces, with addresses 1 and 2 of a prefix. The returned
// function removes it.
func (f *field) join(name, prefix string) (remove func()) {
	f.t.Helper()
	far, err := os.Open(f.B.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	defer far.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	err = f.A.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(int(far.Fd()))})
	if err != nil {
		f.t.Fatal(err)
	}
	for i, ns := range []*testbed.NetNS{f.A, f.B} {
		link, err := ns.Netlink().LinkByName(name)
		if err == nil {
			ip := net.ParseIP(fmt.Sprintf("%s.%d", prefix, i+1)).To4()
			err = ns.Netlink().AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}})
		}
		if err == nil {
			err = ns.Netlink().LinkSetUp(link)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
	return func() {
		f.t.Helper()
		link, err := f.A.Netlink().LinkByName(name)
		if err == nil {
			err = f.A.Netlink().LinkDel(link)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}
