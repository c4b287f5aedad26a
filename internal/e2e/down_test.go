package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/testutil/relay"
)

// Limits on what comes in: `--down`.

// downTolerance is how near to its limit what comes in is.
const downTolerance = 0.02

func TestDownTCP(t *testing.T) {
	for _, c := range []struct {
		limit       float64
		connections int
		v6          bool
	}{{1e6, 1, false}, {10e6, 1, false}, {10e6, 4, false}, {10e6, 4, true}, {100e6, 1, true}, {100e6, 4, false}} {
		t.Run(fmt.Sprintf("%.0f/%d/v6=%t", c.limit, c.connections, c.v6), func(t *testing.T) {
			f := newInbound(newStage(t), testutil.MustPairInOrder(t))
			per := perByte
			if c.v6 {
				per = perByte6
			}
			f.must("set", "--pid", itoa(f.rx.PID()), "--down", fmt.Sprintf("%.0fB/s", c.limit))
			x := f.sendTo(5001, c.v6, testutil.SenderConfig{Connections: c.connections})
			f.receives("in", testutil.Now(), c.limit, per, 5001)
			f.lost(x, 0, 20*time.Millisecond)
		})
	}
}

func TestDownAtADistance(t *testing.T) {
	t.Parallel()
	for _, rtt := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		for _, connections := range []int{1, 4} {
			t.Run(fmt.Sprintf("%v/%d", rtt, connections), func(t *testing.T) {
				f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(rtt)))
				const limit = 5e6
				f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
				x := f.sendTo(5001, false, testutil.SenderConfig{Connections: connections})
				time.Sleep(2 * time.Second) // TCP's start over that path
				f.receives("in", testutil.Now(), limit, perByte, 5001)
				f.lost(x, 20, rtt+40*time.Millisecond) // 10 ms of queue, and what the relay's delay varies by
			})
		}
	}
}
