package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/testutil/relay"
)

// What waits at a low rate is two segments of each connection from the start on: the
// answer to a SYN promises no more, whoever listened first, the limit or the program.
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
		other bool // another's program is asked for windows, too, after ours
	}{{name: "IPv4"}, {name: "IPv6", v6: true}, {name: "listening later", after: true}, {name: "another's program", other: true}}, 1, 3) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			port := uint16(5001)
			if c.after {
				f.must("set", "--user", itoa(listener), "--down", "64kB/s")
				port = 6001
				f.receiver(f.A, testutil.ReceiverConfig{UID: listener, Ports: []testutil.Port{{Number: port}}})
			} else {
				f.must("set", "--pid", itoa(f.rx.PID()), "--down", "64kB/s")
			}
			if c.other {
				g := newInbound(newStage(t), testutil.MustPair(t))
				g.must("set", "--pid", itoa(g.rx.PID()), "--down", "1GB/s")
			}
			x := f.sendTo(port, c.v6, testutil.SenderConfig{Connections: connections})
			time.Sleep(2500 * time.Millisecond) // the mean is that of the last second
			// TCP expects an answer sooner than its second segment has its turn: some
			// of the first are sent again.
			// 0.16 s as a rule; 0.4 s and more if the answer promises what it likes.
			f.lost(x, 4*connections, turns*3/2)
		})
	}
}

// Windows are told in units that suit a low limit, also where buffers may be large.
func TestDownQueueAtADistance(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownQueueOfAccepted")
	t.Parallel()
	const rtt = 20 * time.Millisecond
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(rtt)))
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "1MB/s")
	x := f.sendTo(5001, false, testutil.SenderConfig{Connections: 4})
	time.Sleep(2 * time.Second)
	f.receives("in", testutil.Now(), 1e6, perByte, 5001)
	f.lost(x, 16, rtt+50*time.Millisecond)
}
