package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// At a low rate the backlog is two segments of each connection from the start on: the answer to a SYN announces no
// larger window. The order of the limit and the program's listen does not matter.
func TestDownQueueOfAccepted(t *testing.T) {
	t.Parallel()
	const (
		limit       = 64e3
		connections = 4
		turns       = connections * 2 * 1448 * time.Second / limit // 181 ms
		listener    = 1003
	)
	for _, c := range testutil.Subset([]struct {
		name  string
		v6    bool
		after bool // the program listens under the limit
		other bool // a limit on another program follows, and needs windows, too
	}{{name: "IPv4"}, {name: "IPv6", v6: true}, {name: "listening later", after: true}, {name: "another's program", other: true}}, 1, 3) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			port := uint16(5001)
			if c.after {
				f.must("set", "--user", itoa(listener), "--down", "64kB/s")
				port = 6001
				f.receiver(f.A, testbed.ReceiverConfig{UID: listener, Ports: []testbed.Port{{Number: port}}})
			} else {
				f.must("set", "--pid", itoa(f.rx.PID()), "--down", "64kB/s")
			}
			if c.other {
				g := newInbound(newStage(t), testutil.MustPair(t))
				g.must("set", "--pid", itoa(g.rx.PID()), "--down", "1GB/s")
			}
			x := f.sendTo(port, c.v6, testbed.SenderConfig{Connections: connections})
			time.Sleep(2500 * time.Millisecond) // the mean covers the last second
			// TCP expects an answer before its second segment gets its turn, so it sends some of the first segments
			// again. The round trip is 0.16 s as a rule, and 0.4 s and more if the answer announces an unlimited
			// window.
			f.lost(x, 4*connections, turns*3/2)
		})
	}
}

// netnice chooses a window scale that suits a low limit, also where buffers may be large.
func TestDownQueueAtADistance(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownQueueOfAccepted")
	t.Parallel()
	const rtt = 20 * time.Millisecond
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(rtt)))
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "1MB/s")
	x := f.sendTo(5001, false, testbed.SenderConfig{Connections: 4})
	time.Sleep(2 * time.Second)
	f.receives("in", testbed.Now(), 1e6, perByte, 5001)
	f.lost(x, 16, rtt+50*time.Millisecond)
}
