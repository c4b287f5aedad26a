package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Commands limit a part of the traffic of everybody, of a user, or of a process. Limits appear, change and
// disappear, with open connections, over IPv4 and IPv6.
func TestSetToDestinations(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	// Daemons of other tests also limit everybody.
	const all4, all6 = "10.98.0.68", "fd00:98::6f"
	r.addresses(all4, all6)
	uid := spare + 44
	x := r.ends(r.A, uid, "connect "+all4+" 5001 send", "connect "+all6+" 5002 send",
		fmt.Sprintf("connect %s 5003 send", r.B4), fmt.Sprintf("connect %s 5004 send", r.B6))
	r.ends(r.A, spare+45, "connect "+all4+" 5005 send", fmt.Sprintf("connect %s 5006 send", r.B4))
	r.free("without limits", testbed.Now(), 6e6, 5001, 5002, 5003)

	at := r.must("set", "--to", all4+",fd00:98::6e/127", "--up", "2MB/s")
	r.holds("everybody's, over both", at, 2e6, 5001, 5002, 5005)
	r.free("to elsewhere", at, 6e6, 5003, 5004, 5006)

	at = r.must("set", "--user", itoa(uid), "--to", "any", "--except", all4+"/32", "--except", all6, "--up", "1MB/s")
	r.holds("a user's, but for what is left out", at, 1e6, 5003, 5004)
	r.holds("which is everybody's still", at, 2e6, 5001, 5002, 5005)
	r.free("another user's", at, 6e6, 5006)

	at = r.must("set", "--pid", x.pid(), "--to", fmt.Sprintf("[%s]:5004", r.B6), "--up", "3MB/s")
	r.holds("a longer prefix, of a process", at, 3e6, 5004)
	r.holds("the user's other", at, 1e6, 5003)

	if got := r.netnice("unset", "--user", itoa(uid), "--to", "any"); got.code != 0 || !strings.Contains(got.out, "unchanged") || !strings.Contains(got.out, "there is: to:any,!") {
		t.Errorf("lifted without its exceptions: %v", got)
	}
	for _, want := range []string{"to:" + all4 + ",fd00:98::6e/127", "@user:", "@pid:" + x.pid()} {
		if got := r.netnice("ls"); !strings.Contains(got.out, want) {
			t.Errorf("ls does not have %s: %v", want, got)
		}
	}
	if got := r.netnice("show", "--pid", x.pid()); got.code != 0 || strings.Count(got.out, "to:") != 3 {
		t.Errorf("show: %v", got)
	}
	if got := r.netnice("why", x.pid()); got.code != 0 || !strings.Contains(got.out, "to:") {
		t.Errorf("why: %v", got)
	}
	r.d.kill()
	r.holds("without a daemon", testbed.Now(), 1e6, 5003)
	r.d = r.daemon()
	r.holds("taken over", testbed.Now(), 1e6, 5003)
	r.holds("taken over, everybody's", testbed.Now(), 2e6, 5001, 5002, 5005)

	at = r.must("set", "--to", all4+",fd00:98::6e/127", "--up", "4MB/s")
	r.holds("another rate", at, 4e6, 5001, 5002, 5005)
	at = r.must("unset", "--pid", x.pid(), "--to", fmt.Sprintf("[%s]:5004", r.B6))
	r.holds("the user's again", at, 1e6, 5003, 5004)
	r.must("unset", "--user", itoa(uid), "--to", "any", "--except", all4, "--except", all6)
	at = r.must("unset", "--to", all4+",fd00:98::6e/127")
	r.free("all have gone", at, 6e6, 5001, 5002, 5003, 5004)
	if n := len(r.nodes()); n != 0 {
		t.Errorf("%d limits stand", n)
	}
}

// The same holds for TCP ingress and for datagrams of one protocol only. A user's own limit covers that user's
// processes.
func TestSetToReceivesAndDatagrams(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	uid := spare + 46
	far := r.ends(r.B, 0, "listen 7401 send", "listen 7402 send", "sink 7403", "sink 7404", "listen 7403 receive")
	x := r.ends(r.A, uid, fmt.Sprintf("connect %s 7401 receive", far4), fmt.Sprintf("connect %s 7402 receive", r.B6),
		"flood "+far6+" 7403 3e6", "flood "+far6+" 7404 3e6", "connect "+far6+" 7403 send")
	r.must("set", "--user", itoa(uid), "--to", far4, "--down", "2MB/s")
	r.keeps("received", x, "7401", 2e6)
	r.exceeds("received from elsewhere, over IPv6", x, "7402", 6e6)
	r.must("set", "--user", itoa(uid), "--to", "["+far6+"]:7403", "--protocol", "udp", "--up", "1MB/s")
	r.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		r.until(from)
		got := r.charged("to:["+far6+"]:7403/udp@user:"+itoa(uid), to.Sub(from))
		t.Logf("datagrams: %.4f of the limit", got/1e6)
		return compare("datagrams", got, 1e6, 0.05)
	})
	r.exceeds("datagrams to another port", far, "7404", 2.5e6)
	r.exceeds("TCP to the port", far, "7403", 6e6)
	r.must("set", "--user", itoa(uid), "--to", fmt.Sprintf("[%s]", r.B6), "--down", "1MB/s")
	r.keeps("received over IPv6", x, "7402", 1e6)
	r.must("down")
	r.exceeds("after down", x, "7401", 6e6)
}

// The Internet is limited and the local network is not, each by a link of its own: sent and received, over IPv4 and
// IPv6.
func TestSetToTwoLinks(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestSetTo, TestSetToOfTwoOwners")
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	uid := spare + 49
	const lan4, lan6 = "10.94.0.2", "fd00:94::2"
	defer r.join("lan0", "10.94.0")()
	for i, ns := range []*testbed.NetNS{r.A, r.B} {
		link, err := ns.Netlink().LinkByName("lan0")
		if err != nil {
			t.Fatal(err)
		}
		a, err := netlink.ParseAddr(fmt.Sprintf("fd00:94::%d/64", i+1))
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = unix.IFA_F_NODAD
		if err := ns.Netlink().AddrAdd(link, a); err != nil {
			t.Fatal(err)
		}
	}
	far := r.ends(r.B, 0, "listen 7501 receive", "listen 7502 receive", "listen 7511 send", "listen 7512 send", "listen 7513 send", "listen 7514 send")
	x := r.ends(r.A, uid, "connect "+lan4+" 7501 send", "connect "+lan6+" 7502 send", "connect "+lan4+" 7511 receive", "connect "+lan6+" 7512 receive",
		"connect "+far4+" 5001 send", "connect "+far6+" 5002 send", "connect "+far4+" 7513 receive", "connect "+far6+" 7514 receive")
	at := r.must("set", "--user", itoa(uid), "--to", "any", "--except", "10.94.0.0/16", "--except", "fd00:94::/64", "--up", "1MB/s", "--down", "2MB/s")
	r.holds("to the Internet", at.Add(time.Second), 1e6, 5001, 5002)
	r.judge(testbed.Now(), span, func(from, to testbed.Instant) error {
		r.until(from)
		got := r.comes(x, to.Sub(from), "7513", "7514") * perByte
		t.Logf("from the Internet: %.4f of the limit", got/2e6)
		return compare("from the Internet", got, 2e6, 0.07)
	})
	for port, who := range map[string]*script{"7501": far, "7502": far, "7511": x, "7512": x} {
		r.exceeds("to and from the local network, port "+port, who, port, 3e6)
	}
}

// The limits are under a command of their own, under a cgroup, and, by a user's own request, under that user.
func TestSetToUnder(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestSetTo")
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	run := r.python(options{in: r.A, under: []string{netniceBinary, "run", "--to", far4 + "," + far6, "--up", "1MB/s", "--"}}, ends,
		"connect "+far4+" 5001 send", "connect "+far6+" 5002 send", fmt.Sprintf("connect %s 5003 send", r.B4))
	run.read("ready")
	r.holds("run --to", testbed.Now(), 1e6, 5001, 5002)
	r.free("to elsewhere", testbed.Now(), 6e6, 5003)
	run.close()
	r.assertWithin("the limit ends with its command", 10*time.Second, func() bool { return len(r.nodes()) == 0 })

	group, path := cgroup(t, "to")
	x := r.python(options{in: r.A, cgroup: group}, ends, "connect "+far4+" 5004 send", "connect "+far6+" 5005 send", fmt.Sprintf("connect %s 5006 send", r.B4))
	x.read("ready")
	at := r.must("set", "--cgroup", path, "--to", "10.98.0.64/28,fd00:98::60/124", "--up", "2MB/s")
	r.holds("of a cgroup", at, 2e6, 5004, 5005)
	r.free("to elsewhere", testbed.Now(), 6e6, 5006)
	at = r.must("unset", "--cgroup", path, "--to", "fd00:98::60/124", "--to", "10.98.0.64/28")
	r.free("lifted", at, 6e6, 5004, 5005)
	x.close()

	uid := spare + 50
	own := r.python(options{in: r.A, uid: uid}, ends, "connect "+far4+" 5007 send", "connect "+far6+" 5008 send")
	own.read("ready")
	by := func(args ...string) result {
		cmd := r.command(args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return r.run(cmd, nil)
	}
	if got := by("set", "--to", far4+","+far6, "--up", "1MB/s"); got.code != 0 {
		t.Fatal(got)
	}
	// Data on the way are paid for first.
	r.holds("a user's own", testbed.Now().Add(time.Second), 1e6, 5007, 5008)
	r.must("set", "--user", itoa(uid), "--to", "any", "--up", "500kB/s")
	r.holds("and the administrator's, lower", testbed.Now().Add(time.Second), 5e5, 5007, 5008)
	if got := by("unset", "--user", itoa(uid), "--to", "any"); got.code != 4 || !strings.Contains(got.err, "administrator") {
		t.Errorf("a user lifts the administrator's: %v", got)
	}
	if got := by("set", "--user", "root", "--to", "any", "--up", "1MB/s"); got.code != 4 {
		t.Errorf("a user limits another: %v", got)
	}
}

// A name stands for the addresses that the machine's resolver returns for it.
func TestSetToName(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestSetToName")
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	uid := spare + 51
	far := r.ends(r.A, 0, "listen 7601 receive", "listen 7602 receive", "listen 7603 receive")
	r.ends(r.A, uid, "connect 127.0.0.1 7601 send", "connect ::1 7602 send", "connect 127.0.0.2 7603 send")
	if got := r.netnice("set", "--to", "no-such-name.invalid", "--up", "1MB/s"); got.code != 3 || !strings.Contains(got.err, "is not found") {
		t.Errorf("a name that there is not: %v", got)
	}
	r.must("set", "--user", itoa(uid), "--to", "localhost", "--up", "2MB/s", "--loopback")
	has, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	shown := r.netnice("show", "--user", itoa(uid), "--to", "localhost")
	ports := []string{}
	for _, a := range has {
		if !strings.Contains(shown.out, a.Unmap().String()) {
			t.Errorf("localhost has %s, and what is limited not: %v", a, shown)
		}
		if a == netip.IPv6Loopback() {
			ports = append(ports, "7602")
		} else {
			ports = append(ports, "7601")
		}
	}
	r.judge(testbed.Now().Add(time.Second), span, func(from, to testbed.Instant) error {
		r.until(from)
		got := r.charged("to:localhost@user:"+itoa(uid), to.Sub(from))
		t.Logf("to the name: %.4f of the limit", got/2e6)
		return compare("to the name", got, 2e6, 0.05)
	})
	r.exceeds("to another address", far, "7603", 6e6)
	for _, port := range ports {
		if got := r.comes(far, span/2, port); got < 2e5 || got > 2.2e6 {
			t.Errorf("port %s: %.0f bytes/s of 2 MB/s for both", port, got)
		}
	}
}
