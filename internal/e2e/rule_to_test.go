package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// ends is a program that performs all its arguments at the same time, each in a thread. It connects or listens,
// sends or receives, and counts the bytes that it receives.
//
// The arguments are: connect HOST PORT send|receive, listen PORT send|receive, 20 MB/s at most each, flood HOST PORT
// RATE (UDP, with an address for each datagram), sink PORT.
const ends = `
import socket, sys, threading, time
data = bytes(1 << 16)
counts = {}

def use(s, port, way):
    begin, sent = time.monotonic(), 0
    while True:
        if way == "send":
            s.sendall(data)
            sent += len(data)
            ahead = sent / 20e6 - (time.monotonic() - begin)
            if ahead > 0.001:
                time.sleep(ahead)
            else:
                begin -= ahead # no catching up
        else:
            n = len(s.recv(1 << 18))
            if not n:
                return
            counts[port] = counts.get(port, 0) + n

def connect(host, port, way):
    use(socket.create_connection((host, int(port))), port, way)

def listen(port, way):
    l = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        threading.Thread(target=use, args=(l.accept()[0], port, way), daemon=True).start()

def flood(host, port, rate):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM)
    sent, begin = 0, time.monotonic()
    while True:
        ahead = sent / float(rate) - (time.monotonic() - begin)
        if ahead > 0.001:
            time.sleep(ahead)
        try:
            s.sendto(data[:1000], (host, int(port)))
        except ConnectionRefusedError:
            pass
        sent += 1000

def sink(port):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    s.bind(("::", int(port)))
    use(s, port, "receive")

for words in sys.argv[1:]:
    what, *rest = words.split()
    threading.Thread(target=globals()[what], args=rest, daemon=True).start()
say("ready")
while True:
    asked = wait()
    what, *rest = asked.split()
    if what == "count":
        say("got", counts.get(rest[0], 0), time.monotonic())
    else:
        threading.Thread(target=globals()[what], args=rest, daemon=True).start()
        say("ready")
`

// far4 and far6 are further addresses of B, which no other test uses.
const far4, far6 = "10.98.0.66", "fd00:98::66"

func newRuledTo(t *testing.T, rules string) *ruled {
	t.Helper()
	r := newRuled(t, rules)
	r.addresses(far4, far6)
	return r
}

// addresses gives B further addresses.
func (r *ruled) addresses(v4, v6 string) {
	r.t.Helper()
	moreAddresses(r.t, r.B, v4, v6)
}

// moreAddresses adds addresses to a namespace's device that no other test uses: a limit on a destination covers all
// senders to it.
func moreAddresses(t *testing.T, n *testbed.NetNS, v4, v6 string) {
	t.Helper()
	link, err := n.Netlink().LinkByName(testbed.Device)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{v4 + "/24", v6 + "/64"} {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := n.Netlink().AddrAdd(link, a); err != nil {
			t.Fatal(err)
		}
	}
}

// ends starts that program, as a user if uid is not 0.
func (r *ruled) ends(in *testbed.NetNS, uid uint32, does ...string) *script {
	r.t.Helper()
	x := r.python(options{in: in, uid: uid}, ends, does...)
	x.read("ready")
	return x
}

// comes returns the payload per second that such a program receives by some ports in the same time.
func (r *ruled) comes(x *script, over time.Duration, ports ...string) (perSec float64) {
	r.t.Helper()
	read := func() (bytes, at []float64) {
		bytes, at = make([]float64, len(ports)), make([]float64, len(ports))
		for i, port := range ports {
			x.tell("count " + port)
			if _, err := fmt.Sscan(x.read("got"), &bytes[i], &at[i]); err != nil {
				r.t.Fatal(err)
			}
		}
		return bytes, at
	}
	before, from := read()
	time.Sleep(over)
	after, to := read()
	for i := range ports {
		perSec += (after[i] - before[i]) / (to[i] - from[i])
	}
	return perSec
}

// keeps checks the ingress rate against a limit in IP bytes.
func (r *ruled) keeps(what string, x *script, port string, limit float64) {
	r.t.Helper()
	r.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		r.until(from)
		got := r.comes(x, to.Sub(from), port) * perByte
		r.t.Logf("%s: %.4f of %.0f bytes/s", what, got/limit, limit)
		if got < limit*1.1 { // a late reader also reads the data that it missed
			got = min(got, limit)
		}
		return compare(what, got, limit, 0.05)
	})
}

// exceeds checks that no limit holds the traffic.
func (r *ruled) exceeds(what string, x *script, port string, least float64) {
	r.t.Helper()
	r.judge(testbed.Now(), span/2, func(from, to testbed.Instant) error {
		r.until(from)
		if got := r.comes(x, to.Sub(from), port); got < least {
			return fmt.Errorf("%s: %.0f bytes/s, want more than %.0f", what, got, least)
		}
		return nil
	})
}

// One process sends to a limited address, to a limited port, and to another address, over IPv4 and IPv6. Rules
// appear, change and disappear, also without a daemon.
func TestRuleToDestinations(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToDestinations and internal/daemon TestDestinedRules")
	t.Parallel()
	spare := newUsers()
	rules := fmt.Sprintf(`
[[rule]]
name = "there"
user = %[1]d
to = ["%[2]s", "fd00:98::60/124"]
port = "5001-5004"
up = "1MB/s"

[[rule]]
name = "port"
user = %[1]d
to = ["0.0.0.0/0", "!%[2]s"]
port = [5003, "6000-6010"]
up = "2MB/s"
`, spare+40, far4)
	r := newRuledTo(t, "")
	x := r.ends(r.A, spare+40, "connect "+far4+" 5001 send", "connect "+far6+" 5002 send",
		fmt.Sprintf("connect %s 5003 send", r.B4), fmt.Sprintf("connect %s 5004 send", r.B4), "connect "+far4+" 5005 send")
	r.free("without rules", testbed.Now(), 6e6, 5001, 5002)
	r.write(rules)
	at := r.must("rules", "reload")
	r.holds("an address, over IPv4 and IPv6", at, 1e6, 5001, 5002)
	r.holds("a port", at, 2e6, 5003)
	r.free("to elsewhere", at, 6e6, 5004)
	r.free("another port there", at, 6e6, 5005)
	x.tell("connect " + far4 + " 5001 send")
	x.read("ready")
	r.holds("a new connection, too", testbed.Now(), 1e6, 5001, 5002)
	if got := r.netnice("rules", "test", x.pid()); !strings.Contains(got.out, "there") || !strings.Contains(got.out, "holds: 1 MB/s up") {
		t.Errorf("rules test: %v", got)
	}
	if got := r.netnice("why", x.pid()); got.code != 0 || !strings.Contains(got.out, "there") {
		t.Errorf("why: %v", got)
	}
	if got := r.netnice("ls"); !strings.Contains(got.out, "rule:there") || !strings.Contains(got.out, "rule:port") {
		t.Errorf("ls: %v", got)
	}
	r.write(strings.Replace(rules, "1MB/s", "3MB/s", 1))
	r.holds("another rate", r.must("rules", "reload"), 3e6, 5001, 5002)
	r.d.kill()
	r.holds("without a daemon", testbed.Now(), 3e6, 5001, 5002)
	r.d = r.daemon()
	r.holds("taken over", testbed.Now(), 3e6, 5001, 5002)
	r.write("")
	r.free("the rules have gone", r.must("rules", "reload"), 6e6, 5001, 5003)
	if n := len(r.nodes()); n != 0 {
		t.Errorf("%d limits stand without rules", n)
	}
}

// The same holds for datagrams of unconnected sockets, and for ingress.
func TestRuleToReceivesAndDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToReceivesAndDatagrams and internal/daemon TestDestinedRules")
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, fmt.Sprintf(`
[[rule]]
name = "from there"
user = %[1]d
to = "%[2]s"
down = "2MB/s"

[[rule]]
name = "datagrams"
user = %[1]d
to = "%[3]s"
port = 7001
up = "1MB/s"

[[rule]]
name = "server"
user = %[1]d
port = 7101
up = "1MB/s"
`, spare+41, far4, far6))
	far := r.ends(r.B, 0, "listen 7201 send", "listen 7202 send", "sink 7001", "sink 7002")
	x := r.ends(r.A, spare+41, "listen 7101 send", "listen 7102 send")
	r.assertWithin("the rules hold for a process", 10*time.Second, func() bool {
		return len(r.nodes()) == 3
	})
	for _, does := range []string{
		"connect " + far4 + " 7201 receive", fmt.Sprintf("connect %s 7202 receive", r.B4),
		"flood " + far6 + " 7001 3e6", "flood " + far6 + " 7002 3e6",
	} {
		x.tell(does)
		x.read("ready")
	}
	r.keeps("received", x, "7201", 2e6)
	r.exceeds("received from elsewhere", x, "7202", 6e6)
	// netnice's own count is exact: a late reader reads all the data that it missed.
	r.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		r.until(from)
		got := r.charged("rule:datagrams", to.Sub(from))
		t.Logf("datagrams: %.4f of the limit", got/1e6)
		return compare("datagrams", got, 1e6, 0.05)
	})
	r.exceeds("they come", far, "7001", 5e5)
	r.exceeds("datagrams to another port", far, "7002", 2.5e6)
	for _, does := range []string{fmt.Sprintf("connect %s 7101 receive", r.A4), fmt.Sprintf("connect %s 7102 receive", r.A6)} {
		far.tell(does)
		far.read("ready")
	}
	r.keeps("what a server sends", far, "7101", 1e6)
	r.exceeds("another server", far, "7102", 6e6)
}

// A rule without a process covers all users. A user's own rule covers that user's processes. The lower of both
// holds.
func TestRuleToOfTwoOwners(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestSetToOfTwoOwners")
	t.Parallel()
	spare := newUsers()
	h := newHostile(t, spare, fmt.Sprintf("[[rule]]\nname = 'everybody'\nto = '%s'\nup = '1MB/s'\n", "10.98.0.67"))
	r := &ruled{field: h.field, dir: h.dir, d: h.d}
	link, err := r.B.Netlink().LinkByName(testbed.Device)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := netlink.ParseAddr("10.98.0.67/24")
	if err := r.B.Netlink().AddrAdd(link, a); err != nil {
		t.Fatal(err)
	}
	h.must("unset", "--user", itoa(h.mallory))
	r.ends(r.A, h.mallory, "connect 10.98.0.67 5001 send", fmt.Sprintf("connect %s 5002 send", r.B4))
	r.ends(r.A, spare+42, "connect 10.98.0.67 5003 send")
	r.holds("everybody's", testbed.Now(), 1e6, 5001, 5003)
	r.free("to elsewhere", testbed.Now(), 6e6, 5002)

	file := filepath.Join(h.home, ".config/netnice/netnice.toml")
	write := func(rate string) {
		text := fmt.Sprintf("[[rule]]\nname = 'mine'\nport = '5001-5002'\nup = '%s'\n", rate)
		for _, dir := range []string{filepath.Dir(filepath.Dir(file)), filepath.Dir(file)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, int(h.mallory), int(h.mallory)); err != nil {
			t.Fatal(err)
		}
	}
	write("500kB/s")
	// Data on the way, 64 KB at most each, are paid for first.
	at := r.must("rules", "reload").Add(time.Second)
	r.holds("a user's own, lower", at, 5e5, 5001, 5002)
	r.holds("the other's part of everybody's", at, 75e4, 5003)
	write("9MB/s")
	r.holds("a user's own, higher", r.must("rules", "reload"), 1e6, 5001, 5003)
}

// A rule is for one protocol: the other one to the same destination is free, over IPv4 and IPv6.
func TestRuleToProtocol(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToDestinations and internal/daemon TestDestinedRules")
	t.Parallel()
	spare := newUsers()
	hosts := []string{far4, far6}
	var rules strings.Builder
	for i, host := range hosts {
		fmt.Fprintf(&rules, `
[[rule]]
name = "datagrams%[1]d"
user = %[2]d
to = "%[3]s"
port = 730%[1]d
protocol = "udp"
up = "1MB/s"

[[rule]]
name = "connections%[1]d"
user = %[2]d
to = "%[3]s"
port = 731%[1]d
protocol = "tcp"
up = "2MB/s"
`, i, spare+43, host)
	}
	r := newRuledTo(t, rules.String())
	var receives []string
	for i := range hosts {
		for _, port := range []int{7300 + i, 7310 + i} {
			receives = append(receives, fmt.Sprintf("listen %d receive", port), fmt.Sprintf("sink %d", port))
		}
	}
	far := r.ends(r.B, 0, receives...)
	x := r.ends(r.A, spare+43)
	for i, host := range hosts {
		for _, does := range []string{"connect %s 731%d send", "flood %s 731%d 3e6"} {
			x.tell(fmt.Sprintf(does, host, i))
			x.read("ready")
		}
		holds := func(rule string, limit float64) {
			r.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
				r.until(from)
				got := r.charged("rule:"+rule, to.Sub(from))
				t.Logf("%s to %s: %.4f of the limit", rule, host, got/limit)
				return compare(rule+" to "+host, got, limit, 0.05)
			})
		}
		holds(fmt.Sprint("connections", i), 2e6)
		r.exceeds("and UDP", far, fmt.Sprint(7310+i), 4e6) // in addition to TCP's 2e6
		for _, does := range []string{"connect %s 730%d send", "flood %s 730%d 3e6"} {
			x.tell(fmt.Sprintf(does, host, i))
			x.read("ready")
		}
		holds(fmt.Sprint("datagrams", i), 1e6)
		r.exceeds("and TCP", far, fmt.Sprint(7300+i), 6e6)
	}
}
