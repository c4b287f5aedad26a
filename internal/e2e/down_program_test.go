package e2e

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file show how programs perceive a limit on ingress.

// datagramSender is a sender in B with a given rate. Over a veth pair datagrams fill its buffer until they have
// arrived. A larger buffer than that loses datagrams instead, as from another machine. The receiver in A prints on
// request the bytes of payload that arrived and the arrival time of the last one. The time is the kernel's: a
// receiver that reads late on a busy machine gets earlier datagrams.
const (
	datagramSender = `
host, port, size, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[5] == "remote":
    s.setsockopt(socket.SOL_SOCKET, 32, 64 << 20)  # SO_SNDBUFFORCE
data = bytes(size)
begin, sent = time.monotonic(), 0
while True:
    ahead = sent / rate - (time.monotonic() - begin)
    if ahead > 0.001:
        time.sleep(ahead)
    try:
        s.sendto(data, (host, port))
    except OSError:
        pass
    sent += size
`
	datagramReceiver = `
import fcntl
port, family = int(sys.argv[1]), socket.AF_INET6 if sys.argv[2] == "6" else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
s.bind(("::" if family == socket.AF_INET6 else "", port))
got = count = 0

def read():
    global got, count
    while True:
        got += len(s.recv(65536))
        count += 1

def last_came():
    try:
        s, us = struct.unpack("qq", fcntl.ioctl(sock, 0x8906, bytes(16)))  # SIOCGSTAMP
    except OSError:  # nothing came yet
        return time.time()
    return s + us / 1e6

sock = s
last_came()  # from now on it is noted
threading.Thread(target=read, daemon=True).start()
say("ready")
while True:
    wait()
    for _ in range(20):  # another may be read meanwhile
        so_far, at = (got, count), last_came()
        if so_far == (got, count):
            break
    say("got", *so_far, at)
`
)

func TestDownUDP(t *testing.T) {
	t.Parallel()
	for _, c := range testutil.Subset([]struct {
		size   int
		v6     bool
		before bool // the socket exists before the limit
	}{{1400, false, true}, {1400, true, false}, {200, false, false}, {4000, false, true}}, 0, 1) {
		t.Run(fmt.Sprintf("%d/v6=%t", c.size, c.v6), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			const limit = 1e6
			family, host, headers := "4", f.A4.String(), 28.0
			if c.v6 {
				family, host, headers = "6", f.A6.String(), 48
			}
			if c.size > 1472 { // three fragments
				headers += 40
			}
			o := options{in: f.A}
			if !c.before {
				o.under = []string{netniceBinary, "run", "--down", "1MB/s", "--"}
			}
			rx := f.python(o, datagramReceiver, "6001", family)
			rx.read("ready")
			if c.before {
				f.must("set", "--pid", rx.pid(), "--down", "1MB/s")
			}
			from, whole := "remote", c.size <= 1472
			if !whole { // one lost fragment loses the datagram
				from = "here"
			}
			f.python(options{in: f.B}, datagramSender, host, "6001", strconv.Itoa(c.size), "3e6", from)
			time.Sleep(3 * time.Second) // the queue has its final size, and netnice knows the sizes of packets
			begin := testbed.Now()
			ask := func() (bytes, at float64) {
				var payload, count float64
				rx.tell("how much")
				if _, err := fmt.Sscan(rx.read("got"), &payload, &count, &at); err != nil {
					t.Fatal(err)
				}
				return payload + count*headers, at
			}
			before, begun := ask()
			time.Sleep(3 * time.Second)
			after, to := ask()
			f.near("datagrams", begin, (after-before)/(to-begun), limit, downTolerance)
			if n := f.nodes()["pid:"+rx.pid()].Down; n.DroppedFor.QueueFull != n.Dropped ||
				whole && n.Dropped == 0 && !excused(t, begin, testbed.Now()) {
				t.Errorf("three times the limit came, dropped are %d: %+v", n.Dropped, n.DroppedFor)
			}
		})
	}
}

// More datagrams in fragments arrive than the limit allows. netnice drops whole datagrams: one that lacks a fragment
// is of no use.
func TestDownUDPFragments(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownUDP and internal/enforce/shaping TestReceived")
	t.Parallel()
	for _, c := range testutil.Subset([]struct {
		size  int
		outer bool // the limit around it is the lower one
		least float64
	}{{4000, false, 0.85}, {16000, false, 0.85}, {16000, true, 0.7}}, 2) {
		size := c.size
		t.Run(fmt.Sprintf("%d/outer=%t", size, c.outer), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			const limit = 1e6
			under := []string{netniceBinary, "run", "--down", "1MB/s", "--"}
			if c.outer {
				// The inner limit is on a process of its own.
				under = append(under, "sh", "-c", `"$@"; exit`, "sh", netniceBinary, "run", "--down", "2MB/s", "--")
			}
			rx := f.python(options{in: f.A, under: under}, datagramReceiver, "6001", "4")
			rx.read("ready")
			f.python(options{in: f.B}, datagramSender, f.A4.String(), "6001", strconv.Itoa(size), "3e6", "remote")
			time.Sleep(3 * time.Second)
			begin := testbed.Now()
			d := datagrams{f: f, rx: rx, headers: 8 + 20*math.Ceil(float64(size+8)/1480)}
			before, from := d.ask(rx)
			time.Sleep(3 * time.Second)
			after, to := d.ask(rx)
			got := (after - before) / (to - from)
			t.Logf("%.3f of the limit in whole datagrams", got/limit)
			if got > 1.02*limit || !(got >= c.least*limit) && !excused(t, begin, testbed.Now()) {
				t.Errorf("%.0f bytes/s in whole datagrams of a limit of %.0f", got, limit)
			}
		})
	}
}

// fileServer serves a folder over HTTP.
const fileServer = `
import functools, http.server
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("", 8080), functools.partial(Handler, directory=sys.argv[1]))
say("ready")
server.serve_forever()
`

// The limit on ingress does not cover the machine's traffic to itself.
func TestDownLoopback(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLoopback and TestDownTCP")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	x, err := testbed.StartSender(f.A, testbed.SenderConfig{To: "127.0.0.1:5001"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	if _, err := x.Start(); err != nil {
		t.Fatal(err)
	}
	r := f.netnice("set", "--pid", itoa(f.rx.PID()), "--down", "20MB/s", "--loopback")
	if r.code != 0 || !strings.Contains(r.err, "--loopback concerns what is sent") {
		t.Error(r)
	}
	f.free("from itself", r.at, freely, 5001)
}

func TestDownRefused(t *testing.T) {
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	before := f.devices()
	if r := f.netnice("set", "--pid", itoa(f.rx.PID()), "--down", "10mbps"); r.code != 2 || !strings.Contains(r.err, "mbit") {
		t.Errorf("a rate without a clear unit: %v", r)
	}
	if got := f.devices(); got != before {
		t.Errorf("devices were\n%s\nand are\n%s", before, got)
	}
	if nodes := f.nodes(); len(nodes) > 0 {
		t.Errorf("limits were set: %+v", nodes)
	}
}
