package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

const (
	// A flood by several sockets that does not wait: each datagram carries the time at which it was sent.
	agedFlood = `
host, port, rate, many = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
sockets = [socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) for _ in range(many)]
say("ready")
sent, begin = 0, time.monotonic()
while True:
    for s in sockets:
        try:
            s.sendto(struct.pack("d", time.monotonic()) + bytes(1372), socket.MSG_DONTWAIT, (host, port))
        except (BlockingIOError, ConnectionRefusedError):
            pass
        sent += 1380
    ahead = sent / rate - (time.monotonic() - begin)
    if ahead > 0.001:
        time.sleep(ahead)
`
	agedReceiver = `
s = socket.socket(socket.AF_INET6 if sys.argv[2] == "6" else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", int(sys.argv[1])))
ages = []

def read():
    while True:
        data = s.recv(2048)
        ages.append(time.monotonic() - struct.unpack("d", data[:8])[0])

threading.Thread(target=read, daemon=True).start()
say("ready")
wait()
say("ages", len(ages), max(ages, default=0))
`
)

// Datagrams wait for a slow path for a second at most, from the first datagram on: a receiver has no use for older
// ones. The sender's machine drops the rest.
func TestAdaptBacklog(t *testing.T) {
	t.Parallel()
	const capacity, limit, own4, own6, over = 12e3, 10e3, "10.98.0.113", "fd00:98::73", 8 * time.Second
	for _, c := range testutil.Subset([]struct {
		sockets int
		v6      bool
	}{{1, false}, {8, true}}, 1) {
		t.Run(fmt.Sprintf("%d sockets, v6=%t", c.sockets, c.v6), func(t *testing.T) {
			t.Parallel()
			way := relay.Path{Delay: 5 * time.Millisecond, Rate: capacity, Buffer: 6e3}
			p := testutil.MustDistantPair(t, relay.Config{AtoB: way, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
			moreAddresses(t, p.B, own4, own6)
			p.B4, p.B6 = netip.MustParseAddr(own4), netip.MustParseAddr(own6)
			s := newStage(t)
			f := newInboundFrom(s, p, newNetNS(t))
			host, family := own4, "4"
			if c.v6 {
				host, family = own6, "6"
			}
			if r := s.run(s.command("adapt", host, "--start", "10kB/s", "--most", "10kB/s"), p.A); r.code != 0 {
				t.Fatal(r)
			}
			rx := f.python(options{in: f.B}, agedReceiver, "6001", family)
			rx.read("ready")
			tx := f.python(options{in: f.A}, agedFlood, host, "6001", fmt.Sprint(100*capacity), strconv.Itoa(c.sockets))
			tx.read("ready")
			begin := testbed.Now()
			time.Sleep(over)
			rx.tell("how old")
			var came int
			var longest float64
			if _, err := fmt.Sscan(rx.read("ages"), &came, &longest); err != nil {
				t.Fatal(err)
			}
			dropped := uint64(0)
			for _, n := range s.list().Nodes {
				if n.Subject.Kind == api.KindTo {
					dropped += n.Up.Dropped
				}
			}
			t.Logf("%d datagrams came, that were %.0f ms old at most; %d dropped", came, 1e3*longest, dropped)
			if dropped == 0 && c.sockets > 1 { // the buffer of one socket may be full before anything has to be dropped
				t.Error("nothing was dropped at the source")
			}
			if why := cpus.excuse(begin, testbed.Now()); why != "" {
				t.Logf("not judged: the delay, because %s", why)
				return
			}
			// The path's own queue adds half a second at most to that second. netnice also pauses the
			// flow for four packets while it measures what other senders use, and that adds to it, too.
			if longest > 2.5 {
				t.Errorf("a datagram was %.0f ms old", 1e3*longest)
			}
			if least := 0.5 * limit * over.Seconds() / 1428; float64(came) < least {
				t.Errorf("%d datagrams came, want %.0f at least", came, least)
			}
		})
	}
}
