package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// meets is a program that prints the number of connections that it sets up in a second of its processor time. It
// also prints the number of datagrams that it sends by one socket to two addresses in turn.
const meets = `
import socket, sys, threading, time
port = int(sys.argv[1])
addresses = sys.argv[2:]

def accept(l):
    while True:
        l.accept()[0].close()

l = socket.create_server((addresses[0], port), backlog=4096)
threading.Thread(target=accept, args=(l,), daemon=True).start()
def connections(seconds):
    n, end = 0, time.thread_time() + seconds
    while time.thread_time() < end:
        s = socket.create_connection((addresses[0], port))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
        n += 1
    return n / seconds

u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def datagrams(seconds):
    n, end = 0, time.thread_time() + seconds
    to = [(a, 9) for a in addresses]
    while time.thread_time() < end:
        for _ in range(100):
            for a in to:
                try:
                    u.sendto(b"x", a)
                except OSError:
                    pass
        n += 200
    return n / seconds

say("ready")
while True:
    what, seconds = wait().split()
    say("rate", globals()[what](float(seconds)))
`

// writePrefixes writes a file of n prefixes of 100.64.0.0/10 and elsewhere, and the others.
func writePrefixes(t *testing.T, name string, n int, others ...string) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("# made by a test\n" + strings.Join(others, "\n") + "\n")
	for i := range n {
		fmt.Fprintf(&text, "100.%d.%d.%d/32\n", 64+i>>16, i>>8&255, i&255)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A hundred thousand prefixes of a file have one limit, over IPv4 and IPv6. A command changes its rate without the
// file, and the next daemon has the new rate.
func TestSetToFile(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	r := newRuledTo(t, "")
	uid := spare + 47
	r.ends(r.A, uid, "connect "+far4+" 5001 send", "connect "+far6+" 5002 send", fmt.Sprintf("connect %s 5003 send", r.B4))
	file := writePrefixes(t, "many", 100_000, far4, "fd00:98::66")
	args := []string{"set", "--user", itoa(uid), "--to-file", file, "--up", "2MB/s"}
	at := testbed.Now()
	got := r.netnice(args...)
	if got.code != 0 || !strings.Contains(got.out, "100002 prefixes loaded in ") {
		t.Fatalf("%v: %v", args, got)
	}
	t.Log(got.out)
	r.holds("what the file lists", max(at, testbed.Now()), 2e6, 5001, 5002)
	r.free("what it does not", testbed.Now(), 6e6, 5003)
	r.d.kill()
	r.d = r.daemon()
	r.holds("taken over", testbed.Now(), 2e6, 5001, 5002)
	at = r.must("set", "to:file:"+file+"@user:"+itoa(uid), "--up", "1MB/s")
	r.holds("another rate", at, 1e6, 5001, 5002)
	r.free("what it does not list, still", testbed.Now(), 6e6, 5003)
	if got := r.netnice("show", "--user", itoa(uid), "--to-file", file); !strings.Contains(got.out, "100002 prefixes") {
		t.Errorf("show: %v", got)
	}
	at = r.must("unset", "--user", itoa(uid), "--to-file", file)
	r.free("it has gone", at, 6e6, 5001, 5002)
}

// A datagram to another address than the last has the same cost for ten prefixes as for many. The sender does
// nothing else, and sends to few and to many addresses in turn.
func TestSetToFileCostsInTurn(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToFile, that the file holds; what it costs is timed here only")
	// Not parallel: it compares times.
	spare := newUsers()
	r := newRuledTo(t, "")
	uid := spare + 65
	link, err := r.A.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := net.ParseCIDR("100.64.0.0/10")
	if err == nil { // all of them are addresses of the machine itself
		err = r.A.Netlink().RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: all,
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	x := r.script(options{in: r.A, uid: uid}, agentArgs(agentInTurn, "100.64.0.0", "5602")...)
	x.read("ready")
	few, many := writePrefixes(t, "few", 8, "100.64.0.0/15", "100.66.0.0/16"), writePrefixes(t, "many", turnAmong)
	among := []int{2, 64, 10_000}
	took := map[string][]float64{}
	// The figure is the time of a datagram as a part of that of a connected socket at the same moment: the machine's
	// speed changes from one second to the next.
	parts := map[string][]float64{}
	for i := range 9 {
		files := []string{few, many}
		if i%2 == 1 {
			slices.Reverse(files)
		}
		for _, file := range files {
			r.must("set", "--user", itoa(uid), "--to-file", file, "--up", "1GB/s", "--loopback")
			for _, n := range among {
				name := fmt.Sprint(n, file)
				var three []float64
				for range 3 {
					var ns, connected float64
					x.tell(fmt.Sprint(n, " 0.1"))
					if _, err := fmt.Sscan(x.read("took"), &ns, &connected); err != nil {
						t.Fatal(err)
					}
					three, took[name] = append(three, ns/connected), append(took[name], ns)
				}
				parts[name] = append(parts[name], median(three))
			}
			r.must("unset", "--user", itoa(uid), "--to-file", file)
		}
	}
	for _, n := range among {
		few, many := fmt.Sprint(n, few), fmt.Sprint(n, many)
		var ratios []float64
		for i, part := range parts[many] {
			ratios = append(ratios, parts[few][i]/part)
		}
		slices.Sort(ratios)
		t.Logf("datagrams to %d addresses in turn in a second with 100,000 prefixes, of those with 10: median %.3f of %.3f; medians of %.0f and %.0f ns, %.3f and %.3f of a connected socket's",
			n, median(ratios), ratios, median(took[many]), median(took[few]), median(parts[many]), median(parts[few]))
		if median(ratios) < 0.9 {
			t.Errorf("to %d addresses: %.3f of the rate with ten prefixes", n, median(ratios))
		}
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// Ten prefixes and a hundred thousand have the same cost, within the noise of a busy machine. The test measures the
// cost of a connection, and of a datagram to another address than the last.
func TestSetToFileCosts(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToFile, that the file holds; what it costs is timed here only")
	// Not parallel: it compares times.
	spare := newUsers()
	r := newRuledTo(t, "")
	uid := spare + 48
	link, err := r.A.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	listed := []string{"100.64.0.3", "100.64.0.7"} // in both files, and deep in the tree of the longer one
	for _, text := range listed {
		a, err := netlink.ParseAddr(text + "/32")
		if err == nil {
			err = r.A.Netlink().AddrAdd(link, a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	x := r.python(options{in: r.A, uid: uid}, meets, append([]string{"5601"}, listed...)...)
	x.read("ready")
	few, many := writePrefixes(t, "few", 10), writePrefixes(t, "many", 100_000)
	rate := func(what string) (rate float64) {
		x.tell(what + " 0.8")
		if _, err := fmt.Sscan(x.read("rate"), &rate); err != nil {
			t.Fatal(err)
		}
		return rate
	}
	ratios := map[string][]float64{}
	for i := range 9 {
		got := map[string]map[string]float64{few: {}, many: {}}
		files := []string{few, many}
		if i%2 == 1 {
			slices.Reverse(files)
		}
		for _, file := range files {
			r.must("set", "--user", itoa(uid), "--to-file", file, "--up", "1GB/s", "--loopback")
			time.Sleep(300 * time.Millisecond) // the daemon has read the file, and frees its memory
			for _, what := range []string{"connections", "datagrams"} {
				got[file][what] = rate(what)
			}
			r.must("unset", "--user", itoa(uid), "--to-file", file)
		}
		for what, now := range got[many] {
			ratios[what] = append(ratios[what], now/got[few][what])
		}
	}
	for what, list := range ratios {
		slices.Sort(list)
		t.Logf("%s a second with 100,000 prefixes, of those with 10: median %.3f of %.3f", what, list[len(list)/2], list)
		if list[len(list)/2] < 0.9 {
			t.Errorf("%s: %.3f of the rate with ten prefixes", what, list[len(list)/2])
		}
	}
}
