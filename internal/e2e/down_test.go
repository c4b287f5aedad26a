package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file set limits on ingress: `--down`.

// downTolerance is the tolerance of ingress rates, relative to the limit.
const downTolerance = 0.02

func TestDownTCP(t *testing.T) {
	t.Parallel()
	for _, c := range testutil.Subset([]struct {
		limit       float64
		connections int
		v6          bool
	}{{1e6, 1, false}, {10e6, 1, false}, {10e6, 4, false}, {10e6, 4, true}, {100e6, 1, true}, {100e6, 4, false}}, 0, 3) {
		t.Run(fmt.Sprintf("%.0f/%d/v6=%t", c.limit, c.connections, c.v6), func(t *testing.T) {
			f := newInbound(newStage(t), testutil.MustPairInOrder(t))
			per := perByte
			if c.v6 {
				per = perByte6
			}
			f.must("set", "--pid", itoa(f.rx.PID()), "--down", fmt.Sprintf("%.0fB/s", c.limit))
			x := f.sendTo(5001, c.v6, testbed.SenderConfig{Connections: c.connections, UpToBytesPerSec: 10 * c.limit})
			f.receives("in", testbed.Now(), c.limit, per, 5001)
			f.once("pid:"+itoa(f.rx.PID()), c.limit, f.rx, per, 5001)
			f.lost(x, 0, 20*time.Millisecond)
		})
	}
}

func TestDownAtADistance(t *testing.T) {
	t.Parallel()
	for _, rtt := range testutil.Subset([]time.Duration{20 * time.Millisecond, 100 * time.Millisecond}, 1) {
		for _, connections := range testutil.Subset([]int{1, 4}, 1) {
			t.Run(fmt.Sprintf("%v/%d", rtt, connections), func(t *testing.T) {
				f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(rtt)))
				const limit = 5e6
				f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
				x := f.sendTo(5001, false, testbed.SenderConfig{Connections: connections})
				time.Sleep(2 * time.Second) // TCP's start over that path
				f.receives("in", testbed.Now(), limit, perByte, 5001)
				f.lost(x, 20, rtt+40*time.Millisecond) // 10 ms of queue, and the variation of the relay's delay
			})
		}
	}
}

// The path gets longer because of others' queues or a slow radio, and windows follow it. When the path gets shorter
// again, the queue gets as short as it was.
func TestDownLongerPath(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownAtADistance")
	t.Parallel()
	const (
		limit     = 4e6
		near, far = 20 * time.Millisecond, 60 * time.Millisecond
		queue     = 40 * time.Millisecond
	)
	for _, c := range []struct {
		name        string
		v6          bool
		connections int
		cc          string
		usec        bool // the receiver's time stamps count microseconds
	}{
		{"IPv4", false, 1, "cubic", false},
		{"IPv6", true, 1, "cubic", false},
		{"four", false, 4, "cubic", false},
		{"time stamps in microseconds", false, 1, "cubic", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(near)))
			if c.usec {
				stampsInMicroseconds(t, f)
			}
			f.must("set", "--pid", itoa(f.rx.PID()), "--down", "4MB/s")
			per := perByte
			if c.v6 {
				per = perByte6
			}
			x := f.sendTo(5001, c.v6, testbed.SenderConfig{Connections: c.connections, Congestion: c.cc})
			for _, rtt := range []time.Duration{near, far, near} {
				if err := f.Relay.Set(relay.RoundTrip(rtt)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				f.receives(rtt.String(), testbed.Now(), limit, per, 5001)
				f.lost(x, 20, rtt+queue)
			}
		})
	}
}

// stampsInMicroseconds sets a feature of the receiver's routes, which Linux has since 6.7.
func stampsInMicroseconds(t *testing.T, f *inbound) {
	t.Helper()
	const feature = 1 << 4 // RTAX_FEATURE_TCP_USEC_TS
	h := f.A.Netlink()
	list, err := h.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		r.Features = feature
		if err := h.RouteReplace(&r); err != nil {
			t.Fatalf("set the feature of the route %v: %v", r, err)
		}
	}
}

// A sender pauses because the path stands still. bbr also pauses every 10 s, to measure the path. Afterwards it has
// all of its limit again at once, as no other sender uses the limit.
func TestDownPauses(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/enforce/shaping TestReceived; bbr has no model here")
	t.Parallel()
	const (
		limit = 5e6
		rtt   = 100 * time.Millisecond
	)
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(rtt)))
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
	begin := testbed.Now()
	x := f.sendTo(5001, false, testbed.SenderConfig{Congestion: "bbr"})
	time.Sleep(3 * time.Second)
	for range 2 {
		if err := syscall.Kill(f.Relay.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(800 * time.Millisecond)
		if err := syscall.Kill(f.Relay.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		f.receives("after a pause", testbed.Now().Add(time.Second), limit, perByte, 5001)
	}
	// bbr's own pause is some 0.4 s of the ten.
	f.judge(begin.Add(12*time.Second), 9*time.Second, func(from, to testbed.Instant) error {
		f.until(to)
		got := f.arrived(from, to, 5001) * perByte
		t.Logf("with bbr's own pauses: %.4f", got/limit)
		return compare("with bbr's own pauses", got, 0.95*limit, 0.06)
	})
	f.lost(x, 100, rtt+40*time.Millisecond)
}
