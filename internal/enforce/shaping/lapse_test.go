package shaping

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// bootTime returns the time on the clock of a lapse that is later than now by a span.
func bootTime(t *testing.T, after time.Duration) uint64 {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
	return uint64(now.Nano() + after.Nanoseconds())
}

// A ceiling changes by itself, at a time or after a number of bytes, while no daemon looks after it.
func TestLapse(t *testing.T) {
	const before = 2e6
	type traffic struct {
		direction enforce.Direction
		start     func(*testing.T, *testbed.NetNS) *atomic.Int64
		// part is how much of the new ceiling it uses at least. Received TCP has no queue until a daemon gives it
		// one, and loses what comes too early. Its windows stay those of the ceiling before, too.
		part float64
		// each is how often its bytes are charged. This process sends and receives it.
		each float64
	}
	sendTCP := func(t *testing.T, far *testbed.NetNS) *atomic.Int64 { return tcpFlood(t, far, theirs4, 0) }
	sendUDP := func(t *testing.T, far *testbed.NetNS) *atomic.Int64 {
		to, n := sink(t, far, theirs6)
		flood(t, to, 1000, 20e6)
		return n
	}
	receiveTCP := func(t *testing.T, far *testbed.NetNS) *atomic.Int64 { return stream(t, far, ours6) }
	receiveUDP := func(t *testing.T, far *testbed.NetNS) *atomic.Int64 { return datagrams(t, far, ours4, 20e6) }
	for name, x := range testutil.SubsetOf(map[string]traffic{
		"TCP sent":              {enforce.Up, sendTCP, 0.9, 1},
		"UDP sent":              {enforce.Up, sendUDP, 0.9, 1},
		"TCP received":          {enforce.Down, receiveTCP, 0.1, 1},
		"UDP received":          {enforce.Down, receiveUDP, 0.9, 1},
		"TCP sent, of a total":  {enforce.Total, sendTCP, 0.9, 1},
		"UDP received, of both": {enforce.Total, receiveUDP, 0.9, 2},
	}, "TCP sent", "UDP received") {
		for _, by := range testutil.Subset([]string{"bytes", "time"}, 1) {
			for _, after := range testutil.Subset([]float64{5e5, 6e6, 0}, 1) {
				if by == "bytes" && after != 5e5 {
					continue // the ceiling that follows does not depend on the cause of the lapse
				}
				t.Run(fmt.Sprintf("%s, then %.0f, by %s", name, after, by), func(t *testing.T) {
					far := elsewhere(t)
					k := opened(t)
					defer func() { must(t, Down(options())) }()
					spec := enforce.NodeSpec{ID: 7, Kind: enforce.KindTree, Subject: sending(0).Subject}
					c := &spec.Ceilings[enforce.OwnerAdmin][x.direction]
					c.BytesPerSec = before
					must(t, k.SetNode(spec))
					n := x.start(t, far)
					time.Sleep(time.Second)
					must(t, k.Maintain())
					// A new class for datagrams has half of the limit until it is looked at.
					for end := time.Now().Add(5 * time.Second); x.each*rate(n, 200*time.Millisecond) < before*0.8 && time.Now().Before(end); {
						must(t, k.Maintain())
					}
					c.Lapse.BytesPerSec = uint64(after)
					if by == "time" {
						c.Lapse.BoottimeNS = bootTime(t, 800*time.Millisecond)
					} else {
						s := look(t, k, spec.ID)
						c.Lapse.Bytes = before*8/10 + map[enforce.Direction]uint64{
							enforce.Up: s.Bytes, enforce.Down: s.Down.Bytes, enforce.Total: s.TotalBytes,
						}[x.direction]
					}
					must(t, k.SetNode(spec))
					must(t, k.Close())
					still := x.each * rate(n, 500*time.Millisecond)
					time.Sleep(700 * time.Millisecond) // the queue of before is empty then
					then := x.each * rate(n, 2*time.Second)
					t.Logf("%.2f MB/s before the lapse, %.2f after it", still/1e6, then/1e6)
					if still > before*1.03 || still < before*0.8 {
						t.Errorf("%.0f bytes/s before the lapse, want %.0f", still, before)
					}
					least, most := x.part*after, 1.03*after
					if after == 0 {
						least, most = 4*before, 1e9
					}
					if then > most || then < least {
						t.Errorf("%.0f bytes/s after the lapse, want %.0f", then, after)
					}
				})
			}
		}
	}
}

// A budget of bytes is exceeded by no more than what is under way when it is used up: a chunk of TCP, or what has
// entered the queue.
func TestLapseByBytes(t *testing.T) {
	for _, c := range testutil.Subset([]struct {
		name   string
		rate   uint64
		budget uint64
		start  func(*testing.T, *testbed.NetNS) *atomic.Int64
		most   uint64 // bytes beyond the budget
	}{
		{"TCP at 100 MB/s", 100e6, 20e6, func(t *testing.T, far *testbed.NetNS) *atomic.Int64 { return tcpFlood(t, far, theirs4, 150e6) }, 200_000},
		{"TCP at 10 kB/s", 10e3, 20e3, func(t *testing.T, far *testbed.NetNS) *atomic.Int64 { return tcpFlood(t, far, theirs6, 0) }, 20 << 10},
		{"UDP at 10 MB/s", 10e6, 5e6, func(t *testing.T, far *testbed.NetNS) *atomic.Int64 {
			to, n := sink(t, far, theirs6)
			flood(t, to, 1000, 20e6)
			return n
		}, 200_000},
	}, 2) {
		t.Run(c.name, func(t *testing.T) {
			far := elsewhere(t)
			k := opened(t)
			defer func() { must(t, Down(options())) }()
			spec := sending(c.rate)
			must(t, k.SetNode(spec))
			c.start(t, far)
			time.Sleep(2 * time.Second) // the start is over
			lapse := &spec.Ceilings[enforce.OwnerAdmin][enforce.Up].Lapse
			lapse.Bytes, lapse.BytesPerSec = look(t, k, spec.ID).Bytes+c.budget, 1
			must(t, k.SetNode(spec))
			begin := time.Now()
			for look(t, k, spec.ID).Bytes < lapse.Bytes && time.Since(begin) < 10*time.Second {
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("used up after %v", time.Since(begin))
			time.Sleep(500 * time.Millisecond)
			beyond := int64(look(t, k, spec.ID).Bytes - lapse.Bytes)
			t.Logf("%d bytes beyond a budget of %d", beyond, c.budget)
			if beyond < 0 || beyond > int64(c.most) {
				t.Errorf("%d bytes beyond the budget, want 0 to %d", beyond, c.most)
			}
			must(t, k.Close())
		})
	}
}
