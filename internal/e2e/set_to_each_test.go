package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Each address has the limit by itself; in IPv6 each prefix of 64 bits. The limit covers peers of open connections at
// once, and later peers, too. The limit is changed and lifted for all together.
func TestSetToEachPeer(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToEachPeerBySocket and internal/daemon TestEach")
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	const all4, all6 = "10.98.0.71", "fd00:98::71"
	r.addresses(all4, all6)
	uid := spare + 58
	b4 := func(port int) string { return fmt.Sprintf("connect %s %d send", r.B4, port) }
	r.ends(r.A, uid, "connect "+all4+" 5001 send", "connect "+all4+" 5002 send", b4(5003), "connect "+all6+" 5004 send", fmt.Sprintf("connect %s 5005 send", r.B6))
	r.free("without limits", testbed.Now(), 6e6, 5001, 5002, 5003)
	each := func(args ...string) testbed.Instant {
		return r.must(append([]string{"set", "--user", itoa(uid), "--to", "any", "--each-peer"}, args...)...)
	}
	at := each("--up", "1MB/s").Add(100 * time.Millisecond) // netnice makes a node for each peer meanwhile
	r.holds("two connections to one", at, 1e6, 5001, 5002)
	r.holds("one to another", at, 1e6, 5003)
	r.holds("two addresses of one IPv6 network", at, 1e6, 5004, 5005)
	at = each("--up", "2MB/s").Add(100 * time.Millisecond)
	r.holds("another rate, two connections", at, 2e6, 5001, 5002)
	r.holds("another rate, another address", at, 2e6, 5003)

	r.d.kill()
	r.holds("without a daemon", testbed.Now(), 2e6, 5001, 5002)
	r.d = r.daemon()
	r.holds("taken over", testbed.Now().Add(time.Second), 2e6, 5001, 5002)

	other := spare + 59
	r.must("set", "--user", itoa(other), "--to", "any", "--each-peer", "--up", "1MB/s")
	r.ends(r.A, other, "connect "+all4+" 5006 send", b4(5007))
	now := testbed.Now().Add(100 * time.Millisecond)
	r.holds("met later", now, 1e6, 5006)
	r.holds("met later, another", now, 1e6, 5007)

	out := r.netnice("ls").out
	for _, want := range []string{"to:any/each@user:", "to:" + all4 + "@user:", "to:fd00:98::/64@user:"} {
		if !strings.Contains(out, want) {
			t.Errorf("ls does not have %s:\n%s", want, out)
		}
	}
	for _, u := range []uint32{uid, other} {
		at = r.must("unset", "--user", itoa(u), "--to", "any", "--each-peer")
	}
	r.free("all have gone", at.Add(100*time.Millisecond), 6e6, 5001, 5002, 5003, 5006)
	r.assertWithin("no limit stands", 3*time.Second, func() bool { return len(r.nodes()) == 0 })
}

// One socket sends to many addresses in turn, like a server's: netnice notes each of them.
func TestSetToEachPeerBySocket(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	const hosts = 14 // in 10.98.0.112/28, and as many sites
	r := newRuledTo(t, "")
	uid := spare + 60
	r.must("set", "--user", itoa(uid), "--to", "10.98.0.112/28,2001:db8:98::/48", "--each-peer", "--up", "1MB/s")
	x := r.python(options{in: r.A, uid: uid}, tours, itoa(hosts), "10.98.0.%d", "112")
	y := r.python(options{in: r.A, uid: uid}, tours, itoa(hosts), "2001:db8:98:%x::7", "1")
	for _, s := range []*script{x, y} {
		s.read("ready")
		s.tell("on")
		s.read("sent")
	}
	count := func(part string) (n int) {
		for subject := range r.nodes() {
			if strings.Contains(subject, part) && !strings.Contains(subject, "/each") {
				n++
			}
		}
		return n
	}
	r.assertWithin("all have limits", 2*time.Second, func() bool {
		return count("to:10.98.0.1") == hosts && count("to:2001:db8:98:") == hosts
	})
	for _, s := range []*script{x, y} {
		s.tell("on") // the same addresses again
		s.read("sent")
	}
	time.Sleep(500 * time.Millisecond)
	if n := count("to:"); n != 2*hosts {
		t.Errorf("%d addresses have limits", n)
	}
	r.must("unset", "--user", itoa(uid), "--to", "10.98.0.112/28,2001:db8:98::/48", "--each-peer")
	r.assertWithin("no limit stands", 3*time.Second, func() bool { return len(r.nodes()) == 0 })
}

// tours sends a datagram to each of some addresses, by one socket.
const tours = `
hosts, form, first = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET6 if ":" in form else socket.AF_INET, socket.SOCK_DGRAM)
say("ready")
while wait():
    for i in range(hosts):
        try:
            s.sendto(b"x" * 100, (form % (first + i), 9))
        except OSError:
            pass  # no route leads there; it was asked for all the same
    say("sent")
`

// A new peer, while no daemon runs, has the limit by itself at once, both ways. The next daemon makes an ordinary
// limit of it.
func TestSetToEachPeerUnattended(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestEach, TestEachOfMany")
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	const all4, all6 = "10.98.0.72", "fd00:98::1:72"
	r.addresses(all4, all6)
	uid := spare + 61
	b4 := func(port int, way string) string { return fmt.Sprintf("connect %s %d %s", r.B4, port, way) }
	r.ends(r.B, 0, "listen 7711 send", "listen 7712 send", "listen 7713 send")
	// Ingress is limited only in network namespaces in which netnice has seen a process with the limit.
	r.ends(r.A, uid, "connect "+far4+" 7713 receive")
	r.must("set", "--user", itoa(uid), "--to", "any", "--each-peer", "--up", "1MB/s", "--down", "1.5MB/s")
	time.Sleep(time.Second) // the daemon fills the pool of nodes
	r.d.kill()

	began := testbed.Now()
	x := r.ends(r.A, uid, "connect "+all4+" 5001 send", "connect "+all4+" 5002 send", b4(5003, "send"), "connect "+all6+" 5004 send",
		"connect "+all4+" 7711 receive", b4(7712, "receive"))
	r.holds("without a daemon, two connections to one", began.Add(100*time.Millisecond), 1e6, 5001, 5002)
	r.holds("without a daemon, another", began.Add(100*time.Millisecond), 1e6, 5003)
	r.holds("without a daemon, over IPv6", began.Add(100*time.Millisecond), 1e6, 5004)
	r.keeps("received without a daemon", x, "7711", 1.5e6)
	r.keeps("received without a daemon, from another", x, "7712", 1.5e6)
	if first := r.rate(began, began.Add(500*time.Millisecond), 5003); first > 1.15e6 {
		t.Errorf("the first half second: %.3f of the limit", first/1e6)
	}

	r.d = r.daemon()
	r.assertWithin("they have limits like others", 5*time.Second, func() bool {
		nodes := fmt.Sprint(r.nodes())
		return strings.Contains(nodes, "to:"+all4+"@user:") && strings.Contains(nodes, "to:"+r.B4.String()+"@user:") &&
			strings.Contains(nodes, "to:fd00:98::/64@user:")
	})
	r.holds("taken over", testbed.Now(), 1e6, 5001, 5002)
	r.keeps("received, taken over", x, "7711", 1.5e6)
	at := r.must("set", "--user", itoa(uid), "--to", "any", "--each-peer", "--up", "2MB/s").Add(100 * time.Millisecond)
	r.holds("another rate", at, 2e6, 5001, 5002)
	r.must("unset", "--user", itoa(uid), "--to", "any", "--each-peer")
	r.assertWithin("no limit stands", 3*time.Second, func() bool { return len(r.nodes()) == 0 })
	r.free("all have gone", testbed.Now(), 6e6, 5001, 5002, 5003)
}
