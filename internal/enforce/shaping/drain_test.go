package shaping

import (
	"slices"
	"testing"
	"time"
)

// TestDrain checks that the backlog of a lifted limit leaves, and that no other command waits for that.
func TestDrain(t *testing.T) {
	const limit = 4e3 // bytes/s: a packet of 1428 bytes takes 0.36 s
	far := elsewhere(t)
	before := devices(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	s := stampedFlood(t, far)
	must(t, k.SetNode(sending(limit)))
	queued(t, k)
	soon(t, "a packet has left", 20*time.Second, func() bool { return s.bytes.Load() > 0 })
	begin := time.Now()
	must(t, k.RemoveNode(7))
	lifted := time.Since(begin)
	_, err := k.Stats()
	must(t, err)
	still := k.Attached()["send_out"]
	listed := time.Since(begin)
	k.Drain()
	drained := time.Since(begin)
	t.Logf("lifted in %v, limits listed after %v, all is gone after %v", lifted, listed, drained)
	if !still && listed > 100*time.Millisecond {
		t.Error("a command waited until the queue was empty")
	}
	if now := devices(t); !slices.Equal(now, before) {
		t.Errorf("devices were %q and are %q", before, now)
	}
}
