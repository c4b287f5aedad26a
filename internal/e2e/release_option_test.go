package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Another release takes over the rates that programs have set on their sockets by options. The rates limit TCP egress,
// datagrams and ingress.
func TestAnotherReleaseOptions(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestAnotherRelease")
	t.Parallel()
	spare := newUsers()
	f := newInbound(stageInOwnCgroup(t), testutil.MustPair(t))
	// The kernel's count is exact, as a reader may be late.
	const came = `
def came(s):
    return struct.unpack_from("Q", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 128)[0]
def read(s):
    while s.recv(1 << 16):
        pass
`
	const there = came + `
datagrams = 0
def count():
    global datagrams
    while True:
        datagrams += len(u.recv(1 << 16))
def listen(port):
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("", port))
    l.listen()
    return l
first, second = listen(7001), listen(7002)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("", 6001))
say("ready")
s, _ = first.accept()
threading.Thread(target=read, args=(s,), daemon=True).start()
threading.Thread(target=count, daemon=True).start()
threading.Thread(target=flood, args=(second.accept()[0],), daemon=True).start()
while True:
    wait()
    say("got", time.monotonic(), came(s), datagrams)
`
	const here = came + `
def rate(s, level, option, value):
    s.setsockopt(level, option, struct.pack("Q", value))
def answer():
    say("rates", *(struct.unpack("Q", s.getsockopt(level, option, 8))[0] for s, level, option, _ in all))
s, r = socket.socket(), socket.socket()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
all = [(s, socket.IPPROTO_TCP, 7001, 2_000_000), (u, socket.IPPROTO_UDP, 7001, 1_000_000), (r, socket.IPPROTO_TCP, 7002, 3_000_000)]
for one in all:
    rate(*one)
s.connect((sys.argv[1], 7001))
u.connect((sys.argv[1], 6001))
r.connect((sys.argv[1], 7002))
def datagrams():
    while True:
        try:
            u.send(bytes(1400))
        except OSError:
            pass
for target in lambda: read(r), datagrams, lambda: flood(s):
    threading.Thread(target=target, daemon=True).start()
answer()
while True:
    if wait() == "lift":
        for socket_, level, option, _ in all:
            rate(socket_, level, option, 0)
        answer()
    else:
        say("got", time.monotonic(), came(r))
        answer()
`
	y := f.python(options{in: f.B}, there)
	y.read("ready")
	x := f.python(options{in: f.A, uid: spare + 33}, here, f.B4.String())
	const wanted = "2000000 1000000 3000000"
	if got := x.read("rates"); got != wanted {
		t.Fatalf("getsockopt returned %s", got)
	}
	count := func() (at [2]float64, tcp, udp, received float64, rates string) {
		t.Helper()
		x.tell("count")
		y.tell("count")
		if _, err := fmt.Sscan(x.read("got"), &at[0], &received); err != nil {
			t.Fatal(err)
		}
		rates = x.read("rates")
		if _, err := fmt.Sscan(y.read("got"), &at[1], &tcp, &udp); err != nil {
			t.Fatal(err)
		}
		return at, tcp, udp, received, rates
	}
	look := func(when string, over time.Duration) (tcp, udp, received float64) {
		t.Helper()
		t0, a0, b0, c0, _ := count()
		time.Sleep(over)
		t1, a1, b1, c1, rates := count()
		if when != "" && rates != wanted {
			t.Errorf("%s: getsockopt returned %s", when, rates)
		}
		return (a1 - a0) / (t1[1] - t0[1]) * perByte, (b1 - b0) / (t1[1] - t0[1]) * 1428 / 1400, (c1 - c0) / (t1[0] - t0[0]) * perByte
	}
	holds := func(when string) {
		t.Helper()
		begin := testbed.Now()
		tcp, udp, received := look(when, 2*time.Second)
		f.near(when+": sent by TCP", begin, tcp, 2e6, upTolerance)
		f.near(when+": datagrams", begin, udp, 1e6, upTolerance)
		f.near(when+": received", begin, received, 3e6, downTolerance)
	}
	f.receivesByQueue()
	holds("the first release")
	f.daemon.kill()
	f.otherLayout("unknown")
	f.daemon = f.daemonIn(f.A)
	f.receivesByQueue()
	holds("the second release")
	if left, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/sys/fs/bpf/*_*", f.daemon.cmd.Process.Pid)); len(left) > 0 {
		t.Errorf("the first release's pins are left: %q", left)
	}
	x.tell("lift")
	if got := x.read("rates"); got != "0 0 0" {
		t.Errorf("getsockopt returned %s after the removal", got)
	}
	f.assertWithin("lifted", 3*time.Second, func() bool {
		tcp, udp, received := look("", 200*time.Millisecond)
		return tcp > 6e6 && udp > 3e6 && received > 6e6
	})
}
