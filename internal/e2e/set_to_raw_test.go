package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A limit on a destination also covers traffic that is neither TCP nor UDP, sent and received: pings by sockets of
// both kinds, over IPv4 and IPv6.
func TestSetToRawSockets(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToDestinations, TestUpPing")
	// A limit on all ingress may affect any test: another daemon with devices in the same namespaces takes this
	// one's marks for its own.
	machineAlone(t)
	const (
		own4, own6 = "10.98.0.104", "fd00:98::68"
		limit      = 100e3
		perSec     = 400 // packets of 1400 bytes, to each host
		over       = 2
		// Before the queue exists, control messages may be 1.1 s ahead of the clock, which later ones make up for.
		settled = 3
	)
	r := newRuledTo(t, "")
	moreAddresses(t, r.B, own4, own6)
	for _, c := range testutil.Subset([]struct {
		kind, family, limited, free string
		header                      float64
	}{
		{"raw", "4", own4, r.B4.String(), 20},
		{"raw", "6", own6, r.B6.String(), 40},
		{"ping", "4", own4, r.B4.String(), 20},
		{"ping", "6", own6, r.B6.String(), 40},
	}, 3) {
		what := c.kind + " IPv" + c.family
		echo := func(one, other string) func(after int) (float64, float64) {
			x := r.python(options{in: r.A}, echoes, c.kind, c.family, one, other, itoa(perSec), itoa(over))
			x.read("ready")
			return func(after int) (first, second float64) {
				t.Helper()
				var a, b float64
				x.tell(itoa(after))
				if _, err := fmt.Sscan(x.read("answered"), &a, &b); err != nil {
					t.Fatal(err)
				}
				bytes := 1400 + c.header
				return a * bytes / over, b * bytes / over
			}
		}
		count, others := echo(c.limited, c.free), echo(c.free, c.free)
		full := perSec * (1400 + c.header)
		if limited, free := count(1); limited < 0.8*full || free < 0.8*full {
			t.Errorf("%s: without a limit %.0f and %.0f bytes/s", what, limited, free)
		}
		for _, way := range []string{"up", "down"} {
			after := 1
			if way == "up" {
				after = settled
			}
			r.must("set", "--to", own4+","+own6, "--"+way, "100kB/s")
			r.judge(testbed.Now(), over*time.Second, func(testbed.Instant, testbed.Instant) error {
				limited, free := count(after)
				if way == "down" {
					// The waiting answers fill the buffer of B's kernel for answers to all hosts: here it is the
					// same machine.
					_, free = others(1)
				}
				t.Logf("%s, %s: %.3f of the limit, %.3f of what is sent to another host", what, way, limited/limit, free/full)
				if free < 0.8*full {
					return fmt.Errorf("%s, %s: another host's %.0f bytes/s", what, way, free)
				}
				return compare(what+", "+way, limited, limit, 0.05)
			})
			r.must("unset", "--to", own4+","+own6)
		}
		if limited, _ := count(1); limited < 0.8*full {
			t.Errorf("%s: lifted, %.0f bytes/s", what, limited)
		}
	}
}

// echoes sends echo requests of 1400 bytes to two hosts, by a socket for each. It prints the number of answers in
// some seconds, after a given delay.
const echoes = `
kind, family, hosts, rate, over = sys.argv[1], sys.argv[2], sys.argv[3:5], int(sys.argv[5]), int(sys.argv[6])
six = family == "6"
if kind == "ping":
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as f:
        f.write("0 2147483647")
def open_one():
    s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW if kind == "raw" else socket.SOCK_DGRAM,
                      socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP)
    s.setblocking(False)
    return s
sockets = [open_one() for _ in hosts]
asks, answers, skip = (128, 129, 0) if six else (8, 0, 20 if kind == "raw" else 0)
data = bytes(1392)
head = struct.pack("!BBHHH", asks, 0, 0, 4712, 1)
request = struct.pack("!BBHHH", asks, 0, checksum(head + data), 4712, 1) + data
say("ready")
while after := wait():
    counts, next = [0, 0], time.monotonic()
    begin = next + int(after)  # what was sent before, or waits for its turn, has left
    while time.monotonic() < begin + over:
        for i, s in enumerate(sockets):
            try:
                s.sendto(request, (hosts[i], 0))
            except OSError:
                pass  # its buffer is full
            try:
                while True:
                    got, peer = s.recvfrom(2000)
                    if peer[0] == hosts[i] and got[skip] == answers and time.monotonic() > begin:
                        counts[i] += 1
            except BlockingIOError:
                pass
        next += 1 / rate
        time.sleep(max(next - time.monotonic(), 0))
    say("answered", *counts)
`

// Forwarded traffic belongs to no process here: pings through this machine pass, and pings to it do not.
func TestSetToForwarded(t *testing.T) {
	machineAlone(t) // for the reason at TestSetToRawSockets
	const (
		limit  = 100e3
		perSec = 400
		over   = 2
		full   = perSec * 1420
	)
	r := newInbound(newStage(t), testutil.MustPair(t))
	own := "10.98.0.105"
	moreAddresses(t, r.B, own, "fd00:98::69")
	c, there := forwardedTo(t, r)
	link, err := there.Netlink().LinkByName("behind")
	if err == nil {
		err = there.Netlink().AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(c), Mask: net.CIDRMask(32, 32)}})
	}
	if err == nil { // the route for its answers
		err = there.Netlink().RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Gw: net.ParseIP("10.97.0.1")})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.python(options{in: r.A}, `say("ready"); wait()`).read("ready") // a process that receives there
	x := r.python(options{in: r.B}, strings.Replace(echoes, "s.setblocking(False)", `s.setblocking(False); s.bind(("`+own+`", 0))`, 1),
		"raw", "4", r.A4.String(), c, itoa(perSec), itoa(over))
	x.read("ready")
	r.must("set", "--to", own, "--down", "100kB/s")
	r.judge(testbed.Now(), over*time.Second, func(testbed.Instant, testbed.Instant) error {
		var here, through float64
		x.tell("1")
		if _, err := fmt.Sscan(x.read("answered"), &here, &through); err != nil {
			t.Fatal(err)
		}
		here, through = here*1420/over, through*1420/over
		t.Logf("%.3f of the limit, and %.3f of what is forwarded", here/limit, through/full)
		if through < 0.8*full {
			return fmt.Errorf("through the machine %.0f bytes/s", through)
		}
		return compare("to it", here, limit, 0.1)
	})
}
