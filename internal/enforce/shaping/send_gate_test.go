package shaping

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// TestSentByAGate checks that packets wait at a gate until they may leave. Packets leave up to the allowed bytes, in
// order. A gate that is not spoken to is open, and so is one after Close. The limit holds all the time.
func TestSentByAGate(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adapt TestBeginsBehindABucket, TestWhatYieldsHasItsShare")
	const limit, size, packet = 1e6, 1000, 1000 + udpHeaders4
	far := elsewhere(t)
	before := devices(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	to, came := sink(t, far, theirs4)
	must(t, k.SetNode(sending(limit)))
	if _, err := k.Gate(7, time.Millisecond); !errors.Is(err, enforce.ErrNotSupported) {
		t.Errorf("nothing waits, and there is a gate: %v", err)
	}
	flood(t, to, size, 0)
	settled(t, k)
	g, err := k.Gate(7, time.Millisecond)
	must(t, err)
	// At most one packet was past the gate already.
	left, err := g.Left()
	must(t, err)
	must(t, g.Allow(left))
	time.Sleep(patient(50 * time.Millisecond))
	left, err = g.Left()
	must(t, err)
	arrived := came.Load()
	for range 10 {
		must(t, g.Allow(left))
		time.Sleep(patient(50 * time.Millisecond))
	}
	if now, err := g.Left(); err != nil || now != left || came.Load() != arrived {
		t.Errorf("a shut gate lets %d bytes leave, and %d arrive: %v", now-left, came.Load()-arrived, err)
	}
	for range 10 { // let three packets leave at a time
		for len(g.Moved()) > 0 {
			<-g.Moved()
		}
		must(t, g.Allow(left+2*packet+1))
		time.Sleep(patient(100 * time.Millisecond))
		now, err := g.Left()
		must(t, err)
		if now != left+3*packet || len(g.Moved()) == 0 {
			t.Errorf("%d bytes have left of %d that may, told: %v", now-left, 3*packet, len(g.Moved()) > 0)
		}
		left = now
	}
	if got, want := came.Load()-arrived, int64(30*size); got != want {
		t.Errorf("%d bytes have arrived of %d", got, want)
	}
	if _, err := k.Gate(7, time.Millisecond); !errors.Is(err, enforce.ErrNotSupported) {
		t.Errorf("a second gate: %v", err)
	}
	rate := func(what string, least float64) {
		t.Helper()
		begin, at := came.Load(), time.Now()
		time.Sleep(5 * time.Second) // the 50 ms that may be made up for are 1% of it
		perSec := float64(came.Load()-begin) * packet / size / time.Since(at).Seconds()
		t.Logf("%s: %.4f of the limit", what, perSec/limit)
		if off := tolerance(0.03); perSec > limit*(1+off) || perSec < limit*(least-off) {
			t.Errorf("%s: %.4f of the limit", what, perSec/limit)
		}
	}
	time.Sleep(enforce.GateTime + time.Second)
	rate("nobody speaks to it", 0.9)
	must(t, g.Close())
	must(t, g.Close())
	time.Sleep(3 * time.Second) // until the clock has caught up with what left ahead of it
	rate("closed", 1)
	// After the limit is lifted, packets at a shut gate leave with the rest.
	if g, err = k.Gate(7, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	time.Sleep(patient(50 * time.Millisecond))
	begin := time.Now()
	must(t, k.RemoveNode(7))
	k.Drain()
	if took := time.Since(begin); took > patient(3*time.Second) {
		t.Errorf("lifted after %v", took)
	}
	if err := g.Allow(1 << 40); err == nil {
		t.Error("the gate is still there")
	}
	must(t, g.Close())
	if faults, err := k.Counters(); err != nil || faults["send_class"]+faults["send_socket"] != 0 {
		t.Errorf("%v %v", faults, err)
	}
	if now := devices(t); !slices.Equal(now, before) {
		t.Errorf("devices were %q and are %q", before, now)
	}
}
