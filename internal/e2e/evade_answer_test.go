package e2e

import (
	"fmt"
	"testing"
	"time"

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
        with foreign(socket.SOCK_STREAM) as s:
            s.setblocking(False)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                s.connect((here, port))
            except BlockingIOError:
                pass
`

// The kernel's answers to what a program sends to its own machine are charged to the program, if they leave.
func TestEvadeByAnswers(t *testing.T) {
	// Each request is charged for all answers that it may have.
	const requests = 2 * evadeLimit
	evade(t, func(f *field) {
		if err := f.A.Sysctl("net/ipv4/ping_group_range", "0 2147483647"); err != nil {
			f.t.Fatal(err)
		}
	}, []escape{
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
	})
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
