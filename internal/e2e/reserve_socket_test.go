package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// reservingSender is a program with two connections, to two ports. Its input is the reservation of the first one: a
// period in ms, a slice in us, extra.
const reservingSender = `
NETNICE_RESERVE, ASK = 7003, 2**64 - 1
host, kind = sys.argv[1], sys.argv[2]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
level = socket.IPPROTO_UDP if kind == "udp" else socket.IPPROTO_TCP

sent = {}

def connect(port):
    s = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    s.connect((host, int(port)))
    def send():
        data = bytes(1400 if kind == "udp" else 1 << 16)
        while True:
            try:
                sent[port] = sent.get(port, 0) + s.send(data)
            except ConnectionRefusedError:
                pass
            except OSError:
                return
    threading.Thread(target=send, daemon=True).start()
    return s

def reserve(s, period_ms, slice_us, extra):
    # the words of struct netnice_reservation
    asked = struct.pack("QQIIQQ", period_ms * 1_000_000, ASK if slice_us < 0 else slice_us * 1000, extra, 0, 0, 0)
    try:
        s.setsockopt(level, NETNICE_RESERVE, asked)
        while True:
            period, slice, extra, error, worth, left = struct.unpack("QQIIQQ", s.getsockopt(level, NETNICE_RESERVE, 40))
            if error != errno.EINPROGRESS:
                break
            time.sleep(0.001)
    except OSError as e:
        return [errno.errorcode[e.errno]]
    return errno.errorcode.get(error, "ok"), period // 1_000_000, slice // 1000, extra, worth, left

idle = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
first, second = connect(sys.argv[3]), connect(sys.argv[4])
say("ready")
while True:
    what, *args = wait().split()
    if what == "count":
        say("count", *(sent.get(port, 0) for port in sys.argv[3:]), time.monotonic())
    elif what == "close":
        first.shutdown(socket.SHUT_RDWR)
        first.close()
        say("closed")
    else:
        say("answer", *reserve({"first": first, "idle": idle}[what], *map(int, args)))
`

// A program reserves a part of its link for one of its connections. That connection gets the part while the program
// sends by another connection, and other programs send by many. The user's grant bounds the reservation, which ends
// with the connection.
func TestReserveSocket(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	for i, c := range testutil.Subset([]struct{ name, kind, host string }{{"TCP", "tcp", "4"}, {"TCP over IPv6", "tcp", "6"}, {"UDP", "udp", "4"}}, 1) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testReserveSocket(t, c.kind, c.host, spare+49+uint32(i))
		})
	}
}

func testReserveSocket(t *testing.T, kind, family string, uid uint32) {
	s := stageInOwnCgroup(t)
	s.daemon()
	f := newField(s)
	const line = 2.5e6
	link := linkOf(t, f.A, testbed.Device)
	id := link[len("link:"):]
	user := fmt.Sprint("user:", uid)
	host := f.B4.String()
	if family == "6" {
		host = f.B6.String()
	}
	first, second := f.ports+1, f.ports+2
	f.ports += 2
	x := f.python(options{in: f.A, uid: uid}, reservingSender, host, kind, itoa(first), itoa(second))
	x.read("ready")
	f.ports++
	f.python(options{in: f.A}, `
for i in range(16):
    threading.Thread(target=flood, args=(connect(sys.argv[1]),)).start()
say("ready")`, f.to(f.ports)).read("ready")
	ask := func(what, want string) {
		t.Helper()
		x.tell(what)
		if got := x.read("answer"); got != want {
			t.Errorf("%s: answered %q, want %q", what, got, want)
		}
	}
	// The meter does not count datagrams, so the sender counts all that has left except for a buffer.
	rates := func(from, to testbed.Instant) (own, other float64) {
		if kind == "tcp" {
			return f.rate(from, to, first), f.rate(from, to, second)
		}
		var counts [2][3]float64
		for i, at := range []testbed.Instant{from, to} {
			f.until(at)
			x.tell("count")
			if _, err := fmt.Sscan(x.read("count"), &counts[i][0], &counts[i][1], &counts[i][2]); err != nil {
				t.Fatal(err)
			}
		}
		ip := 1428.0 / 1400 / (counts[1][2] - counts[0][2])
		return (counts[1][0] - counts[0][0]) * ip, (counts[1][1] - counts[0][1]) * ip
	}
	part := func(what string, want float64) {
		t.Helper()
		after := 1500 * time.Millisecond
		if kind == "udp" { // the backlog goes first
			after = 4 * time.Second
		}
		f.judge(testbed.Now().Add(after), 3*time.Second, func(from, to testbed.Instant) error {
			own, other := rates(from, to)
			t.Logf("%s: %.4f of the line, wanted %.4f; the other %.4f", what, own/line, want, other/line)
			return compare(what, own, want*line, 0.03)
		})
	}
	ask("first 20 8000 0", "ENODEV 0 0 0 0 0")
	f.must("set", link, "--up", "20mbit")
	ask("first 20 8000 0", "EPERM 0 0 0 0 0")
	f.must("reserve", user, "--link", id, "--grant", "50%")
	ask("idle 20 8000 0", "ENODEV 0 0 0 0 0")
	ask("first 20 30000 0", "EINVAL")
	ask("first 20 12000 0", "EBUSY 0 0 0 0 1250000")
	ask("first 20 8000 0", "ok 20 8000 0 1000000 250000")
	part("reserved", 0.4)
	ask("first 0 -1 0", "ok 20 8000 0 1000000 250000")
	if n := f.nodes()[link]; n.PromisedBytesPerSec != 1e6 || n.PromisableBytesPerSec != 2_375_000 {
		t.Errorf("of the link %d of %d bytes/s are promised", n.PromisedBytesPerSec, n.PromisableBytesPerSec)
	}
	if n := f.nodes()[user]; n.Granted == nil || n.Granted.PPM != 500_000 {
		t.Errorf("what is granted is shown as %+v", n.Granted)
	}
	f.refused(f.netnice("reserve", user, "--link", id, "--period", "10ms", "--slice", "6ms"), "does not fit", "left")
	f.must("set", link, "--up", "40mbit")
	part("a faster line", 0.8)
	f.daemons[0].kill()
	part("without a daemon", 0.8)
	f.daemon()
	f.must("set", link, "--up", "20mbit")
	ask("first 10 1000 1", "ok 10 1000 1 250000 1000000")
	f.judge(testbed.Now().Add(1500*time.Millisecond), 2*time.Second, func(from, to testbed.Instant) error {
		// The connection gets the user's part of the rest, and the reservation.
		own, other := rates(from, to)
		const want = 0.1 + 0.9/2
		t.Logf("with extra: %.4f of the line, the other %.4f, wanted %.4f of both", own/line, other/line, want)
		return compare("with extra", own+other, want*line, 0.05)
	})
	ask("first 20 0 0", "ok 0 0 0 0 1250000")
	ask("first 20 8000 0", "ok 20 8000 0 1000000 250000")
	f.must("reserve", user, "--link", id, "--grant", "10%")
	ask("first 0 -1 0", "ok 0 0 0 0 250000")
	f.must("reserve", user, "--link", id, "--grant", "40%")
	ask("first 20 8000 0", "ok 20 8000 0 1000000 0")
	if kind == "tcp" && family == "4" { // the example in the header's documentation
		f.ports++
		c := f.script(options{in: f.A, uid: uid}, reserver(t), host, itoa(f.ports), "10000", "1000")
		if got := c.read("refused:"); got != "Device or resource busy, 0 left" {
			t.Errorf("by the header: %q", got)
		}
		ask("first 20 4000 0", "ok 20 4000 0 500000 500000")
		c = f.script(options{in: f.A, uid: uid}, reserver(t), host, itoa(f.ports), "10000", "1000")
		if got := c.read("reserved:"); got != "250000, 250000 left" {
			t.Errorf("by the header: %q", got)
		}
	}
	x.tell("close")
	x.read("closed")
	// The socket still sends its backlog.
	f.assertWithin("the reservation ends with its socket", 20*time.Second, func() bool { return f.nodes()[link].PromisedBytesPerSec == 0 })
}

// reserver builds the example in C.
func reserver(t *testing.T) string {
	t.Helper()
	file := filepath.Join(work, "reserve")
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Fatal("cc is missing: apt-get install gcc libc6-dev")
	}
	if out, err := exec.Command(cc, "-Wall", "-Werror", "-I", "../../include", "-o", file, "../../examples/c/reserve.c").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	return file
}

// A user makes a reservation for a process of theirs within the grant. It ends when its time is over.
func TestReserveGranted(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestReserveSocket")
	t.Parallel()
	f := newField(upStage(t))
	const line = 1.25e6
	const uid = 65534
	link := linkOf(t, f.A, testbed.Device)
	id := link[len("link:"):]
	user := fmt.Sprint("user:", uid)
	x := f.send(testbed.SenderConfig{UID: uid}) // netnice finds the namespace by this connection
	others := f.send(testbed.SenderConfig{Connections: 16})
	f.must("set", link, "--up", "10mbit")
	reserve := func(slice string, more ...string) result {
		return f.asUser(append([]string{"reserve", "--pid", x.pid(), "--link", id, "--period", "10ms", "--slice", slice}, more...)...)
	}
	f.refused(reserve("3ms"), "only the administrator", "sudo netnice reserve")
	f.refused(f.asUser("reserve", user, "--link", id, "--grant", "90%"), "only the administrator", "sudo netnice")
	f.refused(f.netnice("reserve", "--pid", x.pid(), "--link", id, "--grant", "30%"), "is no user", "--user")
	f.refused(f.netnice("reserve", user, "--link", id, "--grant", "130%"), "0 to 100", "--help")
	f.must("reserve", user, "--link", id, "--grant", "30%")
	f.refused(reserve("4ms"), "more than you were granted", "--grant")
	if r := reserve("3ms", "--for", "6s"); r.code != 0 || !strings.Contains(r.out, "3 ms of each 10 ms") {
		t.Fatalf("reserve: %+v", r)
	}
	begin := time.Now()
	f.judge(testbed.Now().Add(time.Second), 2*time.Second, func(from, to testbed.Instant) error {
		return compare("within what was granted", f.rate(from, to, x.port), 0.3*line, 0.03)
	})
	f.assertWithin("its time is over", 8*time.Second, func() bool { return f.nodes()["pid:"+x.pid()].Reserved == nil })
	if took := time.Since(begin); took < 4*time.Second {
		t.Errorf("a reservation for 6 s stood for %v", took)
	}
	f.judge(testbed.Now().Add(time.Second), 2*time.Second, func(from, to testbed.Instant) error {
		return compare("halves", f.rate(from, to, x.port), f.rate(from, to, others.port), 0.1)
	})
}
