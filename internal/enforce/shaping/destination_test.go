package shaping

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// toward returns a destination limit: the node has this number and a ceiling in one direction.
func toward(id uint32, dir enforce.Direction, rate uint64) enforce.NodeSpec {
	spec := enforce.NodeSpec{ID: id, Kind: enforce.KindDestination, Subject: uint64(id)}
	spec.Ceilings[enforce.OwnerAdmin][dir].BytesPerSec = rate
	return spec
}

// named returns one rule for a prefix and a range of ports, in the rule set of administrators.
func named(rule uint32, prefix string, from, to uint16) enforce.DestinationPrefix {
	return enforce.DestinationPrefix{
		Book: enforce.BookAdmin, Prefix: netip.MustParsePrefix(prefix),
		Rules: []enforce.DestinationRule{{Rule: rule, PortFrom: from, PortTo: to}},
	}
}

// drain listens in the other namespace. It reads from each connection, or writes to it, as fast as it can.
func drain(t *testing.T, in *testbed.NetNS, address string, writes bool) net.Addr {
	t.Helper()
	var l net.Listener
	must(t, in.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	}))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if writes {
					_, _ = io.Copy(c, zeros{})
				} else {
					_, _ = io.Copy(io.Discard, c)
				}
				_ = c.Close()
			}()
		}
	}()
	return l.Addr()
}

// exchange connects to an address, and counts the bytes that it sends or receives.
func exchange(t *testing.T, to net.Addr, receives bool) *atomic.Int64 {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if receives {
		return count(c)
	}
	n := new(atomic.Int64)
	go func() {
		for buf := make([]byte, 64<<10); ; {
			got, err := c.Write(buf)
			n.Add(int64(got))
			if err != nil {
				return
			}
			pause(got)
		}
	}()
	return n
}

// TestDestinations checks that a rule limits only the connections of this process to the rule's destination. Such a
// connection is open before the rule, or opens after it. The rule holds for the tree of the process, or for everybody.
func TestDestinations(t *testing.T) {
	far := elsewhere(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	limit, least, most, above := 2e6, 0.95, 1.05, 3.0
	if os.Getenv("NETNICE_VM") != "" {
		limit, least, most, above = 5e5, 0.6, 1.15, 2 // emulated machines are slow
	}
	for _, one := range testutil.Subset([]struct {
		name, address, prefix string
		dir                   enforce.Direction
		tree                  bool
	}{
		{"sent, everybody's", theirs4, theirs4 + "/32", enforce.Up, false},
		{"sent over IPv6, of a tree", theirs6, theirs6 + "/128", enforce.Up, true},
		{"received, of a tree", theirs4, "0.0.0.0/0", enforce.Down, true},
		{"both ways, everybody's", theirs6, "fd00::/8", enforce.Total, false},
	}, 2, 3) {
		t.Run(one.name, func(t *testing.T) {
			receives := one.dir == enforce.Down
			held, free := drain(t, far, one.address, receives), drain(t, far, one.address, receives)
			port := held.(*net.TCPAddr).AddrPort().Port()
			before := exchange(t, held, receives)
			other := exchange(t, free, receives)
			rule, use := uint32(5), enforce.DestinationUse{Scope: 9, Node: 8}
			if one.tree {
				must(t, k.SetNode(enforce.NodeSpec{ID: 9, Kind: enforce.KindTree, Subject: uint64(os.Getpid())}))
			} else {
				rule, use.Scope = rule|enforce.RuleEverybody, 0
			}
			use.Rule = rule
			must(t, k.SetNode(toward(8, one.dir, uint64(limit))))
			must(t, k.SetDestinations(enforce.Destinations{
				Prefixes: []enforce.DestinationPrefix{named(rule, one.prefix, port, port)},
				Uses:     []enforce.DestinationUse{use},
			}))
			after := exchange(t, held, receives)
			wait := 2
			if receives {
				wait = 4 // some MB may still be on the way to the receiver
			}
			for range wait {
				time.Sleep(time.Second)
				must(t, k.Maintain())
			}
			// After rates of GB/s the payload that is in order arrives in jumps: see TestReceived.
			counted := func() float64 {
				s := look(t, k, 8)
				return float64(s.Bytes + s.Down.Bytes)
			}
			bytes, newer, beside, at := counted(), after.Load(), other.Load(), time.Now()
			time.Sleep(2 * time.Second)
			span := time.Since(at).Seconds()
			got := (counted() - bytes) / span
			fresh, free2 := float64(after.Load()-newer)/span, float64(other.Load()-beside)/span
			t.Logf("%.3f of the limit, of this the new connection %.3f, beside it %.1f MB/s", got/limit, fresh/limit, free2/1e6)
			if got < limit*least || got > limit*most {
				t.Errorf("%.0f bytes/s, want %.0f", got, limit)
			}
			part := limit / 10
			if receives {
				part = limit / 100 // bytes that were on the way to the older connection come first
			}
			if fresh < part || fresh > limit {
				t.Errorf("the new connection has %.0f bytes/s", fresh)
			}
			if free2 < above*limit {
				t.Errorf("to elsewhere only %.0f bytes/s", free2)
			}
			must(t, k.SetDestinations(enforce.Destinations{}))
			must(t, k.RemoveNode(8))
			must(t, k.RemoveNode(9))
			k.Drain()
			if again := rate(before, time.Second); again < 1.5*limit {
				t.Errorf("%.0f bytes/s after the rule has gone", again)
			}
		})
	}
}

// TestDestinationsByPort checks two rules for ports, each with one limited port and one free port. The first rule is
// for datagrams to a remote port. The second is for a local port, where a connection was accepted before the rule.
func TestDestinationsByPort(t *testing.T) {
	far := elsewhere(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	limit := 2e6
	if os.Getenv("NETNICE_VM") != "" {
		limit = 2e5
	}
	accepted := func() (uint16, *atomic.Int64) {
		l, err := net.Listen("tcp", net.JoinHostPort(ours4, "0"))
		must(t, err)
		c := dial(t, far, "tcp", l.Addr().String())
		in, err := l.Accept()
		must(t, err)
		t.Cleanup(func() { _, _ = in.Close(), l.Close() })
		go func() { _, _ = io.Copy(in, zeros{}) }()
		return l.Addr().(*net.TCPAddr).AddrPort().Port(), count(c)
	}
	served, held := accepted()
	_, free := accepted()
	to, came := sink(t, far, theirs6)
	other, passed := sink(t, far, theirs6)
	flood(t, to, 1200, 2*limit)
	flood(t, other, 1200, 2*limit)

	const rule = 3 | enforce.RuleEverybody
	must(t, k.SetNode(toward(8, enforce.Up, uint64(limit))))
	must(t, k.SetNode(toward(9, enforce.Up, uint64(limit))))
	at := uint16(to.Port)
	must(t, k.SetDestinations(enforce.Destinations{
		Prefixes: []enforce.DestinationPrefix{named(rule, "::/0", at, at), named(rule+1, "0.0.0.0/0", served, served)},
		Uses:     []enforce.DestinationUse{{Rule: rule, Node: 8}, {Rule: rule + 1, Node: 9}},
	}))
	settled(t, k)
	time.Sleep(time.Second)
	bytes := func(id uint32) float64 { return float64(look(t, k, id).Bytes) }
	begin, datagrams, stream := time.Now(), bytes(8), bytes(9)
	counts := []*atomic.Int64{came, passed, held, free}
	var before [4]int64
	for i, n := range counts {
		before[i] = n.Load()
	}
	time.Sleep(2 * time.Second)
	span := time.Since(begin).Seconds()
	datagrams, stream = (bytes(8)-datagrams)/span/limit, (bytes(9)-stream)/span/limit
	var got [4]float64
	for i, n := range counts {
		got[i] = float64(n.Load()-before[i]) / span / limit
	}
	t.Logf("datagrams %.3f of the limit, accepted %.3f; payload that came %.3f", datagrams, stream, got)
	within := tolerance(0.05) * 2
	if datagrams > 1+within || datagrams < 1-2*within || got[0] < 0.6 || got[0] > 1+within {
		t.Errorf("datagrams: %.3f of the limit", datagrams)
	}
	if got[1] < 1.5 {
		t.Errorf("to the other port: %.3f of the limit", got[1])
	}
	if stream > 1+within || stream < 1-2*within || got[2] > 1+within {
		t.Errorf("accepted: %.3f of the limit", stream)
	}
	if got[3] < 2 {
		t.Errorf("accepted at the other port: %.3f of the limit", got[3])
	}
}
