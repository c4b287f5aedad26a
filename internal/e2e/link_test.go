package e2e

import (
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// linkOf names a device of a namespace as a daemon in another one does.
func linkOf(t *testing.T, n *testbed.NetNS, device string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(n.Path(), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("link:%s@%d", device, st.Ino)
}

// A device's limit covers the egress of all programs by the device, and each program has its part. It includes
// open and new connections, IPv4, IPv6 and UDP. A new rate holds at once, and so does the end.
func TestLink(t *testing.T) {
	// Not parallel: another daemon that leaves takes its callbacks along, for a second.
	f := newField(upStage(t))
	link := linkOf(t, f.A, testbed.Device)
	const limit = 8e6
	x := f.send(testbed.SenderConfig{})
	y := f.send(testbed.SenderConfig{To: "6", Connections: 16})
	f.free("before", testbed.Now(), 20e6, x.port, y.port)

	r := f.run(f.command("link", testbed.Device, "--up", "8MB/s"), f.A)
	if r.code != 0 || !strings.Contains(r.out, link) {
		t.Fatalf("limit a link: %v", r)
	}
	at := testbed.Now()
	f.holds("two programs", at.Add(time.Second), limit, x.port, y.port)
	f.parts("1 and 16 connections", at.Add(time.Second), map[uint16]float64{x.port: 0.5, y.port: 0.5})

	z := f.send(testbed.SenderConfig{Connections: 4})
	f.must("set", "--pid", x.pid(), "--weight", "200")
	f.parts("by weight", testbed.Now().Add(500*time.Millisecond), map[uint16]float64{x.port: 0.5, y.port: 0.25, z.port: 0.25})

	f.ports++
	flood := f.python(options{in: f.A}, udpFlood, f.to(f.ports))
	flood.read("ready")
	time.Sleep(2 * time.Second)
	f.judge(testbed.Now(), 2*time.Second, func(from, to testbed.Instant) error {
		tcp := f.rate(from, to, x.port, y.port, z.port)
		all := f.charged(link, time.Second)
		t.Logf("beside a flood of datagrams: TCP %.3f of the limit, all %.4f", tcp/limit, all/limit)
		if err := compare("TCP", tcp, limit*0.8, 0.05); err != nil {
			return err
		}
		return compare("all", all, limit, 0.02)
	})
	if err := flood.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	at = f.must("set", link, "--up", "16MB/s")
	f.holds("at another rate", at.Add(time.Second), 2*limit, x.port, y.port, z.port)
	at = f.must("unset", link)
	f.free("lifted", at.Add(500*time.Millisecond), 20e6, x.port, y.port, z.port)
}

// The daemon is killed: a link's limit, a reservation and a mark hold. The next daemon takes them over, and nothing
// of them is left after down.
func TestLinkKilledDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestKilledDaemon, TestPersist, TestLink")
	// Not parallel, for the reason at TestLink; and without a daemon nothing restores the callbacks.
	s := newStage(t)
	before := ours(t)
	f := newField(s)
	first := s.daemon()
	link := linkOf(t, f.A, testbed.Device)
	x, y := f.send(testbed.SenderConfig{}), f.send(testbed.SenderConfig{Connections: 4})
	f.must("set", link, "--up", "8MB/s")
	f.must("reserve", "--pid", x.pid(), "--link", link[len("link:"):], "--period", "20ms", "--slice", "15ms")
	f.must("set", "--pid", y.pid(), "--dscp", "cs1")
	parts := map[uint16]float64{x.port: 0.75, y.port: 0.25}
	f.parts("with a daemon", testbed.Now().Add(time.Second), parts)
	made := objectsOf(t, first.cmd.Process.Pid)
	first.kill()
	f.parts("without a daemon", testbed.Now(), parts)
	z := f.send(testbed.SenderConfig{})
	f.parts("one more", testbed.Now().Add(time.Second), map[uint16]float64{x.port: 0.75, y.port: 0.125, z.port: 0.125})
	second := s.daemon()
	f.parts("adopted", testbed.Now().Add(time.Second), map[uint16]float64{x.port: 0.75, y.port: 0.125, z.port: 0.125})
	nodes := s.nodes()
	if n := nodes["pid:"+x.pid()]; n.Reserved == nil || n.MinBytesPerSec != 6e6 {
		t.Errorf("the second daemon adopted a reservation as %+v", n)
	}
	if n := nodes["pid:"+y.pid()]; n.DSCP == nil || *n.DSCP != 8 {
		t.Errorf("the second daemon adopted a mark as %+v", n)
	}
	f.must("set", link, "--up", "16MB/s")
	f.judge(testbed.Now().Add(time.Second), 2*time.Second, func(from, to testbed.Instant) error {
		return compare("of a faster link", f.rate(from, to, x.port), 12e6, 0.03)
	})
	maps.Copy(made, objectsOf(t, second.cmd.Process.Pid))
	f.free("after down", s.must("down"), 20e6, x.port, y.port, z.port)
	<-second.ended
	s.leaves(made, before)
}

// A device limits ingress, too, by its name in the daemon's own namespace.
func TestLinkDown(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLink and TestDownTCP")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPairInOrder(t))
	link := linkOf(t, f.A, testbed.Device)
	f.must("set", link, "--down", "10MB/s")
	x := f.sendTo(5001, false, testbed.SenderConfig{Connections: 4})
	y := f.sendTo(5002, true, testbed.SenderConfig{})
	f.receives("by a link", testbed.Now().Add(time.Second), 10e6, perByte, 5001, 5002)
	f.lost(x, 2, 20*time.Millisecond) // a tail probe, where an acknowledgement was late
	f.lost(y, 2, 20*time.Millisecond)
	if n, ok := f.nodes()["link:"+testbed.Device]; !ok || n.Down.RateBytesPerSec < 9e6 {
		t.Errorf("the link is shown as %+v", n)
	}
}

// The limit also covers accepted connections that send little and end.
func TestLinkServer(t *testing.T) {
	// Not parallel, for the reason at TestLink. Beside other tests 7% more than the limit left once.
	f := newField(upStage(t))
	f.segmented()
	server := f.python(options{in: f.A}, `
import socketserver
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(100)
        self.request.sendall(bytes(12000))
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128
    daemon_threads = True
server = Server(("", 8080), Answer)
say("ready")
server.serve_forever()
`)
	server.read("ready")
	const limit = 1e6
	f.must("set", linkOf(t, f.A, testbed.Device), "--up", "1MB/s")
	begin := f.wire()
	clients := f.python(options{in: f.B}, `
def ask():
    while True:
        try:
            s = socket.create_connection((sys.argv[1], 8080))
            s.sendall(b"x")
            while s.recv(65536):
                pass
            s.close()
        except OSError:
            time.sleep(0.01)
import threading
for _ in range(8):
    threading.Thread(target=ask, daemon=True).start()
say("ready")
wait()
`, f.A4.String())
	clients.read("ready")
	time.Sleep(4 * time.Second)
	end := f.wire()
	rate, _ := end.since(begin)
	t.Logf("connections of 12 KB: %.3f of the limit", rate/limit)
	if err := end.inBudget(begin, limit, evadeBurst+evadeEarly); err != nil {
		t.Error(err)
	}
	if rate < 0.8*limit && !excused(t, begin.at, end.at) {
		t.Errorf("%.0f bytes/s, want %.0f", rate, limit)
	}
}

// A connection follows its route from one device to another; each device has its own limit or none. A device that
// returns under the same name is limited again. netnice refuses a missing device, lo, and a request of a user.
func TestLinkRoute(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLink; a route that changes is tested here only")
	t.Parallel()
	f := newField(upStage(t))
	const second = "nn2"
	remove := f.join(second, "10.97.0")
	x := f.send(testbed.SenderConfig{})
	link := linkOf(t, f.A, testbed.Device)
	f.must("set", link, "--up", "2MB/s")
	f.holds("by the limited device", testbed.Now().Add(500*time.Millisecond), 2e6, x.port)

	to := net.IPNet{IP: f.B4.AsSlice(), Mask: net.CIDRMask(32, 32)}
	index := func() int {
		l, err := f.A.Netlink().LinkByName(second)
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	if err := f.A.Netlink().RouteReplace(&netlink.Route{Dst: &to, LinkIndex: index()}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	now := testbed.Now()
	free := f.arrived(now, now.Add(time.Second), x.port)
	t.Logf("by the other device: %.0f MB/s", free/1e6)
	if free < 20e6 {
		t.Errorf("by a device without a limit: %.0f bytes/s", free)
	}

	f.must("set", linkOf(t, f.A, second), "--up", "4MB/s")
	held := func(what string) {
		t.Helper()
		f.judge(testbed.Now().Add(time.Second), span, func(from, to testbed.Instant) error {
			got := f.arrived(from, to, x.port) * perByte
			t.Logf("%s: %.4f of 4 MB/s", what, got/4e6)
			return compare(what, got, 4e6, 0.03)
		})
	}
	held("by the other device, limited")
	remove()
	time.Sleep(1500 * time.Millisecond)
	f.holds("by the first again", testbed.Now().Add(time.Second), 2e6, x.port)
	f.join(second, "10.97.0")
	time.Sleep(1500 * time.Millisecond) // a tick of the daemon, once a second
	if err := f.A.Netlink().RouteReplace(&netlink.Route{Dst: &to, LinkIndex: index()}); err != nil {
		t.Fatal(err)
	}
	held("by the device that came back")

	f.refused(f.netnice("set", "--link", "nosuch", "--up", "1MB/s"), "there is no network device nosuch", "ip link")
	f.refused(f.netnice("link", "lo", "--rate", "1MB/s"), "lo carries what the machine sends to itself", "--loopback")
	f.refused(f.asUser("set", link, "--up", "1GB/s"), "only the administrator", "sudo netnice set")
	f.refused(f.netnice("set", link, "--min", "1MB/s"), "has nothing around it", "netnice set")
	f.refused(f.netnice("link", testbed.Device), "no rate given", "netnice link nn0 --rate")
}

// Traffic that the machine forwards does not wait. It reduces the rate of the programs by the device: all together
// send the limit.
func TestLinkForwards(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLink; what is forwarded is tested here only")
	// Not parallel, for the reason at TestLink.
	f := newField(upStage(t))
	f.segmented()
	behind, err := testbed.NewNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Close() })
	f.behind(behind)
	link := linkOf(t, f.A, testbed.Device)
	x := f.send(testbed.SenderConfig{Connections: 4})
	f.must("set", link, "--up", "5MB/s")
	f.holds("alone", testbed.Now().Add(time.Second), 5e6, x.port)
	f.ports++
	other := f.python(options{in: behind}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
say("ready")
begin, n = time.monotonic(), 0
while True:
    if n * 1428 < (time.monotonic() - begin) * 2e6:
        try:
            s.send(bytes(1400))
        except OSError:
            pass
        n += 1
    else:
        time.sleep(0.0005)
`, f.B4.String(), itoa(uint32(f.ports)))
	other.read("ready")
	time.Sleep(2 * time.Second)
	f.judge(testbed.Now(), 2*time.Second, func(from, to testbed.Instant) error {
		begin := f.wire()
		own := f.rate(from, to, x.port)
		all, _ := f.wire().since(begin)
		t.Logf("own %.3f, all %.3f of 5 MB/s", own/5e6, all/5e6)
		if err := compare("own", own, 3e6, 0.05); err != nil {
			return err
		}
		return compare("all", all, 5e6, 0.03)
	})
	f.assertWithin("the link is shown as busy", 2*time.Second, func() bool { return f.nodes()[link].Up.RateBytesPerSec >= 4.5e6 })
}

// Programs keep a line of 100 Mbit/s busy, with a modem that has room for 0.1 s of it. With a limit of 98% on the
// device a request of another program is answered as over an idle line. The line is as busy as before.
func TestLinkModem(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLink and internal/clock TestLineModel")
	// Not parallel: its path of 100 Mbit/s needs a processor.
	const line, rtt = 12.5e6, 20 * time.Millisecond
	path := relay.RoundTrip(rtt)
	path.AtoB.Rate = line
	f := newField(upStage(t))
	_ = f.meter.Close()
	f.Pair = testutil.MustDistantPair(t, path)
	f.rx = f.receiver(f.B, testbed.ReceiverConfig{Interval: 10 * time.Millisecond, Ports: []testbed.Port{
		{Number: 5001}, {Number: 5002}, {Number: requestPort, RequestBytes: 600, ReplyBytes: 100},
	}})
	x := f.send(testbed.SenderConfig{Connections: 8, Congestion: "cubic"})
	y := f.send(testbed.SenderConfig{Congestion: "cubic"})
	asks := f.send(testbed.SenderConfig{Mode: testbed.Request, RequestBytes: 600, ReplyBytes: 100, Pause: 10 * time.Millisecond})
	look := func(from, to testbed.Instant) (busy float64, median time.Duration) {
		busy = f.arrived(from, to, x.port, y.port) * perByte / line
		return busy, testbed.Percentile(asks.Latency(from, to), 50)
	}
	time.Sleep(3 * time.Second)
	from := testbed.Now()
	busy, before := look(from, from.Add(2*time.Second))
	t.Logf("without a limit: %.3f of the line, an answer takes %v", busy, before.Round(100*time.Microsecond))

	at := f.must("set", linkOf(t, f.A, testbed.Device), "--up", "98mbit")
	f.judge(at.Add(3*time.Second), 2*time.Second, func(from, to testbed.Instant) error {
		busy, median := look(from, to)
		t.Logf("98%% of it: %.3f of the line, an answer takes %v", busy, median.Round(100*time.Microsecond))
		if median > rtt+5*time.Millisecond {
			return fmt.Errorf("an answer takes %v over a path of %v", median, rtt)
		}
		return compare("all", busy, 0.98, 0.015)
	})
	if before < 2*rtt {
		t.Errorf("without a limit an answer takes %v: the line was not full", before)
	}
}

// behind puts a namespace behind A, which forwards for it.
func (f *field) behind(n *testbed.NetNS) {
	f.t.Helper()
	near, err := os.Open(f.A.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	defer near.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "nn1"
	fail := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	fail(n.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "nn1", PeerNamespace: netlink.NsFd(int(near.Fd()))}))
	for i, ns := range []*testbed.NetNS{f.A, n} {
		l, err := ns.Netlink().LinkByName("nn1")
		fail(err)
		fail(ns.Netlink().AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 96, 0, byte(i+1)).To4(), Mask: net.CIDRMask(24, 32)}}))
		fail(ns.Netlink().LinkSetUp(l))
	}
	fail(n.Netlink().RouteAdd(&netlink.Route{Gw: net.IPv4(10, 96, 0, 1)}))
	b, err := f.B.Netlink().LinkByName(testbed.Device)
	fail(err)
	fail(f.B.Netlink().RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 96, 0, 0).To4(), Mask: net.CIDRMask(24, 32)}, LinkIndex: b.Attrs().Index, Gw: f.A4.AsSlice()}))
	fail(f.A.Sysctl("net/ipv4/ip_forward", "1"))
}
