package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// These tests cover the options that give a socket a node of its own: for ingress, and for datagrams that it sends.

// optionDatagrams sends datagrams by a socket as fast as it may. The socket limits itself before the flood. On request
// it gets another rate in mid-flood, or no limit any more.
const optionDatagrams = option + `
def udp_rate(s, value):
    s.setsockopt(socket.IPPROTO_UDP, TCP_SNDRATE, struct.pack("Q", value))

host, port = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
udp_rate(s, 1_000_000)
s.connect((host, port))
sent = 0

def flood():
    global sent
    data = bytes(1400)
    while True:
        try:
            sent += s.send(data)
        except ConnectionRefusedError:
            pass

threading.Thread(target=flood, daemon=True).start()
say("ready")
while True:
    asked = wait()
    if asked.isdigit():
        udp_rate(s, int(asked))
        say("set", struct.unpack("Q", s.getsockopt(socket.IPPROTO_UDP, TCP_SNDRATE, 8))[0])
    else:
        say("got", sent, sent // 1400, time.monotonic())
`

// A UDP socket has a rate of its own: the sender waits, as at a slow device.
func TestSocketOptionUDP(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSocketOption and internal/enforce/shaping TestSocketsLimitThemselves")
	t.Parallel()
	spare := newUsers()
	f := newInbound(stageInOwnCgroup(t), testutil.MustPair(t))
	before := f.devices()
	for i, host := range []string{f.B4.String(), f.B6.String()} {
		d := datagrams{f: f, headers: []float64{28, 48}[i]}
		port := itoa(6001 + i)
		d.rx = f.python(options{in: f.B}, datagramReceiver, port, []string{"4", "6"}[i])
		d.rx.read("ready")
		d.tx = f.python(options{in: f.A, uid: spare}, optionDatagrams, host, port)
		d.tx.read("ready")
		for _, limit := range []float64{1e6, 3e6} {
			d.tx.tell(fmt.Sprint(int(limit)))
			if got := d.tx.read("set"); got != fmt.Sprint(int(limit)) {
				t.Errorf("getsockopt returned %s, want %.0f", got, limit)
			}
			f.queued()
			time.Sleep(500 * time.Millisecond)
			begin := testbed.Now()
			got, lost := d.rate(2 * time.Second)
			f.near(host, begin, got, limit, upTolerance)
			if lost > 0.05 { // datagrams on the way
				t.Errorf("%.3f of what was sent did not come", lost)
			}
		}
		if i == 0 { // the limit does not need the daemon
			f.daemon.kill()
			time.Sleep(500 * time.Millisecond)
			begin := testbed.Now()
			got, _ := d.rate(time.Second)
			f.near("without a daemon", begin, got, 3e6, 0.04)
			f.daemon = f.daemonIn(f.A)
			time.Sleep(500 * time.Millisecond)
			begin = testbed.Now()
			got, _ = d.rate(time.Second)
			f.near("taken over", begin, got, 3e6, 0.04)
		}
		d.tx.tell("0")
		d.tx.read("set")
		f.assertWithin("lifted", 2*time.Second, func() bool {
			free, _ := d.rate(100 * time.Millisecond)
			return free > 9e6
		})
		d.tx.close()
	}
	f.assertWithin("devices as before", 15*time.Second, func() bool { return f.devices() == before })
}

// A limit on a socket's TCP ingress can be set before connect, on an open connection, and on a listener for its
// accepted sockets.
func TestSocketOptionReceives(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newInbound(stageInOwnCgroup(t), testutil.MustPair(t))
	before := f.devices()
	const reads = option + `
TCP_RCVRATE = 7002

def receive_rate(s, value):
    s.setsockopt(socket.IPPROTO_TCP, TCP_RCVRATE, struct.pack("Q", value))

counts = []

def read(s):
    i = len(counts)
    counts.append(0)
    def run():
        while True:
            n = len(s.recv(1 << 16))
            if not n:
                return
            counts[i] += n
            if n > 1 << 15:
                time.sleep(0.004)  # the unlimited ones leave some of the CPUs
    threading.Thread(target=run, daemon=True).start()

family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
one = socket.socket(family)
receive_rate(one, 2_000_000)
one.connect((sys.argv[1], 7001))
two = socket.create_connection((sys.argv[1], 7001))
three = socket.create_connection((sys.argv[1], 7001))
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
receive_rate(listener, 3_000_000)
listener.bind(("", 7002))
listener.listen()
say("listening")
four, _ = listener.accept()
five, _ = listener.accept()
sockets = [one, two, three, four, five]
for s in sockets:
    read(s)
say("ready")
while True:
    asked = wait().split()
    if asked[0] == "set":
        receive_rate(sockets[int(asked[1])], int(asked[2]))
        say("set", struct.unpack("Q", sockets[int(asked[1])].getsockopt(socket.IPPROTO_TCP, TCP_RCVRATE, 8))[0])
    else:
        say("got", time.monotonic(), *counts)
`
	const sends = `
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
def flood(s):
    data = bytes(1 << 16)
    while True:
        s.sendall(data)
def serve():
    while True:
        threading.Thread(target=flood, args=(l.accept()[0],), daemon=True).start()
l = socket.socket(family)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("", 7001))
l.listen()
threading.Thread(target=serve, daemon=True).start()
say("ready")
wait()
for _ in range(2):
    threading.Thread(target=flood, args=(socket.create_connection((sys.argv[1], 7002)),), daemon=True).start()
wait()
`
	for i, v := range testutil.Subset([][2]string{{f.B4.String(), f.A4.String()}, {f.B6.String(), f.A6.String()}}, 0) {
		per := []float64{perByte, perByte6}[i]
		tx := f.python(options{in: f.B}, sends, v[1])
		tx.read("ready")
		rx := f.python(options{in: f.A, uid: spare}, reads, v[0])
		rx.read("listening")
		tx.tell("go")
		rx.read("ready")
		sample := func() (at float64, n [5]float64) {
			rx.tell("count")
			if _, err := fmt.Sscan(rx.read("got"), &at, &n[0], &n[1], &n[2], &n[3], &n[4]); err != nil {
				t.Fatal(err)
			}
			return at, n
		}
		look := func(want [5]float64) {
			t.Helper()
			time.Sleep(2500 * time.Millisecond) // netnice finds a socket within a second or so, and then makes its node
			begin := testbed.Now()
			t0, n0 := sample()
			time.Sleep(2 * time.Second)
			t1, n1 := sample()
			for i, limit := range want {
				got := (n1[i] - n0[i]) / (t1 - t0) * per
				if limit == 0 {
					if got < 7e6 {
						t.Errorf("%d: %.0f bytes/s without a limit", i, got)
					}
					continue
				}
				f.near(fmt.Sprintf("%s %d", v[0], i), begin, got, limit, downTolerance)
			}
		}
		rx.tell("set 1 1000000")
		if got := rx.read("set"); got != "1000000" {
			t.Errorf("getsockopt returned %s", got)
		}
		look([5]float64{2e6, 1e6, 0, 3e6, 3e6})
		if i == 0 {
			f.receivesByOption(rx)
		}
		rx.tell("set 0 0")
		rx.read("set")
		rx.tell("set 1 5000000")
		rx.read("set")
		look([5]float64{0, 5e6, 0, 3e6, 3e6})
		rx.close()
		tx.close()
		if i > 0 {
			break
		}
		f.assertWithin("nodes gone", 3*time.Second, func() bool {
			return !slices.ContainsFunc(f.status().Programs, func(p api.Program) bool { return p.Name == "shape_window" && p.Attached })
		})
	}
	f.assertWithin("devices as before", 5*time.Second, func() bool { return f.devices() == before })
}

// receivesByQueue waits until a queue holds the ingress of the sockets. Earlier data are then through. netnice
// also knows the ports of sockets that were bound after they got a rate.
func (f *inbound) receivesByQueue() {
	f.t.Helper()
	f.assertWithin("a queue for what is received", 30*time.Second, func() bool {
		return slices.ContainsFunc(f.status().Programs, func(p api.Program) bool { return p.Name == "shape_window" && p.Attached })
	})
	time.Sleep(3 * time.Second) // with 1.5 s, 1.16 of three limits arrived in the next two on a busy machine
}

// receivesByOption checks with netnice why that these limits bind the sockets of TestSocketOptionReceives.
func (f *inbound) receivesByOption(x *script) {
	f.t.Helper()
	begin := testbed.Now()
	w := f.why(x.pid())
	found := map[uint64]int{}
	for _, s := range w.Sockets {
		if s.Remote == "" { // the listener
			continue
		}
		if len(s.Limits) != 1 {
			f.t.Errorf("%+v, want the socket's own limit", s)
			continue
		}
		l := s.Limits[0]
		if l.Owner != "setsockopt" || !l.Holds || binding(s) != "socket:TCP_RCVRATE down" || s.Down != api.BoundByLimit {
			f.t.Errorf("%+v, want its own limit to bind", s)
		}
		f.near("why: used", begin, l.Used, 1, 0.05)
		found[l.BytesPerSec]++
	}
	if found[1e6] != 1 || found[2e6] != 1 || found[3e6] != 2 {
		f.t.Errorf("limits of sockets are %v", found)
	}
}

// A limit on a socket's received datagrams holds when twice as many arrive.
func TestSocketOptionReceivesUDP(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSocketOptionReceives and internal/enforce/shaping TestSocketsLimitThemselves")
	t.Parallel()
	f := newInbound(stageInOwnCgroup(t), testutil.MustPair(t))
	const limits = "s.setsockopt(socket.IPPROTO_UDP, 7002, struct.pack('I', 1_000_000))\n"
	rx := f.python(options{in: f.A}, strings.Replace(datagramReceiver, "s.bind", limits+"s.bind", 1), "6001", "6")
	rx.read("ready")
	for i, host := range []string{f.A4.String(), f.A6.String()} {
		d := datagrams{f: f, headers: []float64{28, 48}[i], rx: rx}
		d.tx = f.python(options{in: f.B}, datagramFlood, host, "6001", "1400", "2e6")
		d.tx.read("ready")
		f.receivesByQueue()
		begin := testbed.Now()
		got, _ := d.rate(2 * time.Second)
		f.near(host, begin, got, 1e6, downTolerance)
		if w := f.why(rx.pid()); len(w.Sockets) != 1 || binding(w.Sockets[0]) != "socket:TCP_RCVRATE down" {
			t.Errorf("%+v, want the socket's own limit to bind", w)
		}
		d.tx.close()
	}
}
