package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// fromElsewhere makes sockets that send from the address of another machine, which over IPv6 any program may, to an address of
// this one. The traffic passes the loopback device, and the kernel's answers go to the other machine.
const fromElsewhere = `
here, IPV6_FREEBIND = "fd00:98::1", 78
def foreign(kind, protocol=0):
    s = socket.socket(socket.AF_INET6, kind, protocol)
    s.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    s.bind((there6[0], 0))
    return s
def requests(port):
    while True:
        try:
            with foreign(socket.SOCK_STREAM) as s:
                s.setblocking(False)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.connect((here, port))
        except OSError:  # in progress, or nothing is free for a moment
            pass
`

// The kernel's answers to what a program sends to its own machine are charged to the program, if they leave.
func TestEvadeByAnswers(t *testing.T) {
	// Each request is charged for all answers that it may have.
	const requests = 2 * evadeLimit
	evade(t, answering, []escape{
		{name: "a port that is closed", least: 0.5, text: fromElsewhere + `
ready()
def some():
    with foreign(socket.SOCK_DGRAM) as s:
        s.connect((here, 1))
        while True:
            try:
                s.send(bytes(1200))
            except OSError:
                pass
threads(2, some)
`},
		{name: "requests to a port that is closed", least: 0.02, bursts: requests, text: fromElsewhere + `
ready()
threads(2, lambda: requests(1))
`},
		{name: "requests to a listener", least: 0.02, bursts: requests, text: fromElsewhere + `
listener = socket.create_server(("::", 7777), family=socket.AF_INET6, backlog=4096)
ready()
threads(2, lambda: requests(7777))
`},
		// The kernel answers though there is a socket: it takes what goes to an own address to come by the device that has
		// the address, and the other one expects something else.
		{name: "sockets that do not receive", least: 0.5, text: fromElsewhere + `
bound = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
bound.bind(("::", 7778))
encap = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
encap.setsockopt(socket.IPPROTO_UDP, 100, 2)  # UDP_ENCAP, UDP_ENCAP_ESPINUDP
encap.bind(("::", 7779))
ready()
def some():
    with foreign(socket.SOCK_DGRAM) as s:
        for i in range(1 << 40):
            try:
                s.sendto(b"\x01" * 1200, (here, 7778 + i % 2))
            except OSError:
                pass
threads(2, some)
`},
		{name: "pings", least: 0.5, ahead: 1100 * time.Millisecond, text: fromElsewhere + `
ready()
def some():
    with foreign(socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6) as s:
        s.connect((here, 0))
        for i in range(1 << 40):
            try:
                s.send(struct.pack("!BBHHH", 128, 0, 0, 0, i & 0xffff) + bytes(1400))
            except OSError:
                pass
threads(2, some)
`},
		// A group that every machine is in. With a hop limit of 0 the packet itself does not leave.
		{name: "pings to a group that stay here", least: 0.5, ahead: 1100 * time.Millisecond, args: []string{testbed.Device}, text: fromElsewhere + pingsToGroup + `
ready()
threads(2, lambda: pings(0, 1400))
`},
		{name: "large pings to a group that stay here", least: 0.5, ahead: 1100 * time.Millisecond, args: []string{testbed.Device}, text: fromElsewhere + pingsToGroup + `
ready()
threads(2, lambda: pings(0, 60000))
`},
		{name: "pings to a group", least: 0.5, ahead: 1100 * time.Millisecond, args: []string{testbed.Device}, text: fromElsewhere + pingsToGroup + `
ready()
threads(2, lambda: pings(1, 1400))
`},
		{name: "pings in a tunnel", least: 0.5, args: []string{overlay4, overlayMAC}, text: pingInTunnel + `
packet = tunneled(1300)
ready()
def some():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        while True:
            try:
                s.sendto(packet, ("127.0.0.1", 4789))
            except OSError:
                pass
threads(2, some)
`},
		{name: "large pings in a tunnel over IPv6", least: 0.5, args: []string{overlay4, overlayMAC}, text: fromElsewhere + pingInTunnel + `
packet = tunneled(60000)
ready()
def some():
    with foreign(socket.SOCK_DGRAM) as s:
        while True:
            try:
                s.sendto(packet, (here, 4790))
            except OSError:
                pass
threads(2, some)
`},
		{name: "pings in a tunnel to a group", least: 0.5, args: []string{overlay4, overlayMAC, testbed.Device}, text: fromElsewhere + pingInTunnel + `
packet = tunneled(1300)
link = socket.if_nametoindex(sys.argv[5])
ready()
def some():
    with foreign(socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 0)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, link)
        while True:
            try:
                s.sendto(packet, ("ff02::1", 4790, 0, link))
            except OSError:
                pass
threads(2, some)
`},
		// No hook sees such a packet: the kernel hands itself a copy without its socket, and drops the packet.
		{name: "pings in a tunnel to a group over IPv4", open: true, args: []string{overlay4, overlayMAC}, text: pingInTunnel + `
packet = tunneled(1300)
ready()
def some():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.98.0.1"))
        while True:
            try:
                s.sendto(packet, ("224.0.0.1", 4789))
            except OSError:
                time.sleep(0.01)
threads(2, some)
`},
		{name: "a route by the own machine", least: 0.5, text: fromElsewhere + `
route = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + socket.inet_pton(socket.AF_INET6, there6[0]) + socket.inet_pton(socket.AF_INET6, here)
ready()
def some():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IPV6, 57, route)  # IPV6_RTHDR
        while True:
            try:
                s.sendto(bytes(1300), there6)
            except OSError:
                pass
threads(2, some)
`},
	})
}

const overlay4, overlayMAC = "10.99.0.1", "02:00:00:00:00:01"

// pingInTunnel makes a packet of VXLAN with a ping in it from the other machine to sys.argv[3], whose device has the
// address sys.argv[4].
const pingInTunnel = `
def checksum(b):
    total = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    total = (total >> 16) + (total & 0xffff)
    return struct.pack("!H", ~(total + (total >> 16)) & 0xffff)
def tunneled(size):
    ping = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + bytes(size)
    ping = ping[:2] + checksum(ping) + ping[4:]
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(ping), 0, 0, 64, 1, 0, socket.inet_aton(there[0]), socket.inet_aton(sys.argv[3]))
    header = header[:10] + checksum(header) + header[12:]
    mac = bytes.fromhex(sys.argv[4].replace(":", ""))
    return struct.pack("!BBHI", 8, 0, 0, 10 << 8) + mac + b"\x02\0\0\0\0\x02\x08\0" + header + ping
`

// pingsToGroup sends pings to the group of all machines on the link.
const pingsToGroup = `
def pings(hops, size):
    link = socket.if_nametoindex(sys.argv[-1])
    with foreign(socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6) as s:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, link)
        for i in range(1 << 40):
            try:
                s.sendto(struct.pack("!BBHHH", 128, 0, 0, 0, i & 0xffff) + bytes(size), ("ff02::1", 0, 0, link))
            except OSError:
                pass
`

// answering lets a machine answer all that it may: its kernel takes pings out of a tunnel, and follows routes in packets.
func answering(f *field) {
	f.t.Helper()
	mac, err := net.ParseMAC(overlayMAC)
	if err != nil {
		f.t.Fatal(err)
	}
	link, err := f.A.Netlink().LinkByName(testbed.Device)
	if err != nil {
		f.t.Fatal(err)
	}
	nl := f.A.Netlink()
	for name, to := range map[string]netip.Addr{"tunnel4": f.B4, "tunnel6": f.B6} {
		tunnel := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac}, VxlanId: 10, Port: 4789,
			Group: to.AsSlice(), VtepDevIndex: link.Attrs().Index,
		}
		if to.Is6() {
			tunnel.Port, tunnel.UDP6ZeroCSumRx = 4790, true
		}
		if err := errors.Join(nl.LinkAdd(tunnel), nl.LinkSetUp(tunnel), f.A.Sysctl("net/ipv4/conf/"+name+"/rp_filter", "0")); err != nil {
			f.t.Fatal(err)
		}
	}
	address, err := netlink.ParseAddr(overlay4 + "/24")
	if err != nil {
		f.t.Fatal(err)
	}
	tunnel, err := nl.LinkByName("tunnel4")
	if err := errors.Join(err, nl.AddrAdd(tunnel, address)); err != nil {
		f.t.Fatal(err)
	}
	for key, value := range map[string]string{
		"net/ipv4/ping_group_range":      "0 2147483647",
		"net/ipv4/conf/all/rp_filter":    "0",
		"net/ipv6/conf/all/forwarding":   "1",
		"net/ipv6/conf/all/seg6_enabled": "1",
		"net/ipv6/conf/lo/seg6_enabled":  "1",
	} {
		if err := f.A.Sysctl(key, value); err != nil {
			f.t.Fatal(err)
		}
	}
}

// What a program sends to its own machine from another of the machine's addresses stays free.
func TestOwnAddressesAreFree(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEvadeByAnswers and TestLoopback")
	t.Parallel()
	f := newField(upStage(t))
	const limit, seconds, own4, own6 = 1e6, 2.0, "10.98.0.104", "fd00:98::68"
	moreAddresses(t, f.A, own4, own6)
	for _, c := range []struct{ from, to string }{{own4, f.A4.String()}, {own4, "127.0.0.1"}, {own6, f.A6.String()}, {own6, "::1"}} {
		for _, kind := range []string{"SOCK_DGRAM", "SOCK_STREAM"} {
			if kind == "SOCK_DGRAM" && c.from == own6 { // any program may send such from elsewhere: it is charged
				continue
			}
			x := f.python(options{in: f.A}, `
here, to, kind = sys.argv[1], sys.argv[2], getattr(socket, sys.argv[3])
family = socket.AF_INET6 if ":" in to else socket.AF_INET
r = socket.socket(family, kind)
r.bind((to, 0))
s = socket.socket(family, kind)
s.bind((here, 0))
if kind == socket.SOCK_STREAM:
    r.listen()
say("ready")
wait()
s.connect(r.getsockname())
if kind == socket.SOCK_STREAM:
    r, _ = r.accept()
got, end = 0, time.monotonic() + float(sys.argv[4])
while time.monotonic() < end:
    s.send(bytes(1200))
    got += len(r.recv(1200))
say("got", got)
`, c.from, c.to, kind, fmt.Sprint(seconds))
			x.read("ready")
			f.must("set", "--pid", x.pid(), "--up", fmt.Sprintf("%.0fB/s", limit))
			time.Sleep(settle)
			x.tell("go")
			var got float64
			if _, err := fmt.Sscan(x.read("got"), &got); err != nil {
				t.Fatal(err)
			}
			if rate := got / seconds; rate < 3*limit {
				t.Errorf("%s from %s to %s: %.0f bytes/s under a limit of %.0f that is not for what stays here", kind, c.from, c.to, rate, limit)
			}
			f.netnice("unset", "--pid", x.pid())
		}
	}
}
