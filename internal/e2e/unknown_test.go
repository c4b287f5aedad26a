package e2e

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Traffic without a known owner counts as such, and for no other subject.
func TestUnknown(t *testing.T) {
	machineAlone(t)
	s := newStage(t)
	f := newInbound(s, testutil.MustPair(t))
	c, _ := forwardedTo(t, f)
	u := &unknown{inbound: f}

	// A program that ended before the limit left data in its socket.
	reader := s.python(options{in: f.B}, reads, f.B4.String(), "6001")
	reader.read("ready")
	orphan := s.python(options{in: f.A, uid: 1003}, leaves, f.B4.String(), "6001")
	orphan.read("left")
	<-orphan.ended
	f.must("set", "--host", "--up", "10MB/s", "--down", "20MB/s")
	pinger := s.python(options{in: f.B}, pings, f.A4.String())
	pinger.read("ready")
	u.grows("what the kernel answers", func() float64 {
		pinger.tell("on")
		pinger.read("answered")
		return 200 * 1028
	}, func(n api.Unknown) uint64 { return n.Up.BytesOf.Kernel })

	const packets, size = 2000, 1000
	sender := s.python(options{in: f.B}, sprays, c, itoa(packets), itoa(size))
	sender.read("ready")
	for try := 1; ; try++ {
		before := s.nodes()["host"].Down.Bytes
		u.grows("what is forwarded", func() float64 {
			sender.tell("on")
			sender.read("sent")
			return packets * (size + 28)
		}, func(n api.Unknown) uint64 { return n.Down.BytesOf.NoSocket })
		more := s.nodes()["host"].Down.Bytes - before
		t.Logf("the host received %d bytes, and %d were forwarded", more, packets*size)
		if more < packets*size/2 {
			break
		}
		if try == 4 { // the machine's other ingress
			t.Error("what is forwarded counts as the host's")
			break
		}
	}
	s.python(options{in: f.A, uid: 1003}, "flood(connect(sys.argv[1]))", f.B4.String()+":6002")
	u.grows("what drains of a connection whose program has ended", func() float64 {
		reader.tell("on")
		var drained int
		if _, err := fmt.Sscan(reader.read("got"), &drained); err != nil {
			t.Fatal(err)
		}
		return float64(drained) * perByte
	}, func(n api.Unknown) uint64 { return n.Up.BytesOf.Socket })
	if all := s.nodes()["host"].Up.Bytes; all < 2*u.last.Up.BytesOf.Socket {
		t.Errorf("the host is charged %d bytes, of which nobody's are %d: the other program had at least half", all, u.last.Up.BytesOf.Socket)
	}

	for what, want := range map[string]string{
		"ls":        `(?m)^unknown .* MB `,
		"show host": `(?m)^  unknown +[0-9.]+ MB sent \(.* by sockets of no process, .* by the kernel itself\), .* for no socket here\)$`,
		"status":    `(?m)^unknown +[0-9.]+ MB sent \(`,
	} {
		r := s.netnice(strings.Fields(what)...)
		if !regexp.MustCompile(want).MatchString(r.out) {
			t.Errorf("netnice %s has no %s:\n%s", what, want, r.out)
		}
	}
}

// unknown follows netnice's counters of traffic without an owner.
type unknown struct {
	*inbound
	last api.Unknown
}

// grows checks that one counter grows by the IP bytes that do sends or receives.
func (u *unknown) grows(what string, do func() float64, counter func(api.Unknown) uint64) {
	u.t.Helper()
	before := counter(u.list().Unknown)
	want := do()
	time.Sleep(150 * time.Millisecond) // netnice's figures may be 0.1 s old
	u.last = u.list().Unknown
	got := float64(counter(u.last) - before)
	u.t.Logf("%s: counted %.0f of %.0f bytes", what, got, want)
	// The machine has little other traffic.
	if got < 0.97*want || got > 1.2*want+100e3 {
		u.t.Errorf("%s: counted %.0f bytes, want %.0f; all is %+v", what, got, want, u.last)
	}
}

// forwardedTo makes a third namespace behind A, without any process. It returns an address there that no device has.
func forwardedTo(t *testing.T, f *inbound) (address string, there *testbed.NetNS) {
	t.Helper()
	c, err := testbed.NewNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	far, err := os.Open(c.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "behind"
	cidr := func(text string) *net.IPNet {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return &net.IPNet{IP: ip, Mask: n.Mask}
	}
	steps := []func() error{
		func() error {
			return f.A.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "behind", PeerNamespace: netlink.NsFd(int(far.Fd()))})
		},
		func() error { return f.A.Sysctl("net/ipv4/ip_forward", "1") },
		func() error {
			link, err := c.Netlink().LinkByName("behind")
			if err != nil {
				return err
			}
			if err := c.Netlink().AddrAdd(link, &netlink.Addr{IPNet: cidr("10.97.0.2/24")}); err != nil {
				return err
			}
			return c.Netlink().LinkSetUp(link)
		},
		func() error {
			link, err := f.A.Netlink().LinkByName("behind")
			if err != nil {
				return err
			}
			if err := f.A.Netlink().AddrAdd(link, &netlink.Addr{IPNet: cidr("10.97.0.1/24")}); err != nil {
				return err
			}
			if err := f.A.Netlink().LinkSetUp(link); err != nil {
				return err
			}
			return f.A.Netlink().RouteAdd(&netlink.Route{Dst: cidr("10.96.0.0/24"), Gw: net.ParseIP("10.97.0.2")})
		},
		func() error {
			return f.B.Netlink().RouteAdd(&netlink.Route{Dst: cidr("10.96.0.0/24"), Gw: f.A4.AsSlice()})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return "10.96.0.7", c
}

// leaves fills the socket's buffer, and ends.
const leaves = `
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
s.connect((sys.argv[1], int(sys.argv[2])))
s.setblocking(False)
n = 0
try:
    while n < 3_000_000:
        n += s.send(bytes(1 << 16))
except BlockingIOError:
    pass
s.close()
say("left", n)
`

// reads waits for a command before it reads its first connection, then reads all that is left. It reads others at
// once.
const reads = `
host, port = sys.argv[1], int(sys.argv[2])
other = socket.create_server((host, port + 1))
def drain():
    s, _ = other.accept()
    while s.recv(1 << 20):
        pass
threading.Thread(target=drain, daemon=True).start()
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
l.bind((host, port))
l.listen()
say("ready")
s, _ = l.accept()
wait()
came = len(s.recv(1 << 20))  # before the limit
n = 0
while True:
    b = s.recv(1 << 20)
    if not b:
        break
    n += len(b)
say("got", n)
wait()
`

// pings sends 200 pings of 1028 bytes, each after the answer to the last one.
const pings = `
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(1)
data = bytes(1000)
say("ready")
wait()
for i in range(200):
    head = struct.pack("!BBHHH", 8, 0, 0, 4711, i)
    s.sendto(struct.pack("!BBHHH", 8, 0, checksum(head + data), 4711, i) + data, (sys.argv[1], 0))
    while s.recv(2000)[20] != 0:
        pass
say("answered")
wait()
`

// sprays sends datagrams at 10 MB/s.
const sprays = `
to, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"", (to, 9))  # the way is looked for
say("ready")
while wait():
    time.sleep(0.1)
    for i in range(count):
        s.sendto(bytes(size), (to, 9))
        if i % 10 == 0:
            time.sleep(0.0005)
    say("sent")
`
