package shaping

import (
	"math"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/due"
	"github.com/netnice/netnice/internal/testutil"
)

func TestBacklogBytes(t *testing.T) {
	const full = usualPacket + linkHeader
	for _, c := range []struct {
		what              string
		rate              float64
		most              time.Duration
		share             float64
		quantum, datagram uint32
		want              uint32
	}{
		{"a second", 100e3, time.Second, 1, leastQuantum, 1428, 100_000},
		{"with link headers", 100e3, time.Second, 0.8, leastQuantum, 1428, 125_000},
		{"a tenth of one", 100e3, 100 * time.Millisecond, 1, leastQuantum, 1428, 10_000},
		{"two full packets", 1000, time.Second, 1, leastQuantum, 1428, 2 * full},
		{"one of many segments", 1000, time.Second, 1, 60_014, 1428, 60_014},
		{"two datagrams in fragments", 1000, time.Second, 1, leastQuantum, 4000, 2 * (4000 + linkHeader)},
		{"no more than without a bound", 10e9, time.Second, 1, leastQuantum, 1428, sendQueue},
	} {
		if got := backlogBytes(c.rate, c.most, c.share, c.quantum, c.datagram); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, got, c.want)
		}
	}
}

// TestRecentRate checks that a queue becomes longer at once, and shorter after its rate has been lower for a while. It
// does not become shorter for a moment in which hardly anything is sent.
func TestRecentRate(t *testing.T) {
	var r recentRate
	at := time.Now()
	after := func(d time.Duration, rate, want float64) {
		t.Helper()
		at = at.Add(d)
		if got := r.most(rate, at); got != want {
			t.Errorf("at %.0f bytes/s it is %.0f, want %.0f", rate, got, want)
		}
	}
	after(0, 100e3, 100e3)
	after(due.Look, 200e3, 200e3)
	for range 9 {
		after(due.Look, 20e3, 200e3) // a tenth
	}
	after(due.Look, 200e3, 200e3)
	for range 9 {
		after(due.Look, 20e3, 200e3)
	}
	after(backlogHeld-due.Look, 20e3, 200e3)
	after(due.Look, 20e3, 20e3)
	after(due.Look, 21e3, 21e3)
	// At a low rate, a moment is as long as some packets take.
	r = recentRate{}
	after(0, 3000, 3000)
	after(2*time.Second, 300, 3000)
	after(3*time.Second, 300, 3000)
	after(4*time.Second, 300, 300)
}

// TestBacklogRates checks the rates for which queues are sized. A program that sends has the rate that it is due. An
// unused class has the rate that one more program would have.
func TestBacklogRates(t *testing.T) {
	spec := enforce.NodeSpec{ID: 5}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = 90_000
	n := &outgoing{spec: spec, rates: map[uint64]float64{77: 60_000, 78: 100_000}}
	o := &outlet{}
	if got := o.laneRates(n); got[0] != 90_000 {
		t.Errorf("all in one lane: %.0f", got[0])
	}
	o.lanes = bpf.LaneOwn
	if got := o.laneRates(n); got[0] != 90_000 || got[15] != 90_000 {
		t.Errorf("nobody sends: %.0f", got)
	}
	o.part[1], o.part[2], o.part[3] = part{child: 77, waits: true}, part{child: 78, waits: true}, part{child: 79, quiet: shareQuiet + 1}
	got := o.laneRates(n)
	if want := [...]float64{30_000, 60_000, 90_000, 30_000}; [4]float64(got[:4]) != want {
		t.Errorf("two send: %.0f, want %.0f", got[:4], want)
	}
	o.part[3].quiet = 0
	if got := o.laneRates(n); got[3] != 30_000 || got[0] != 90_000/4.0 {
		t.Errorf("of the third it is not known: %.0f", got[:4])
	}
}

// bounded returns a node with a limit on egress, and with a bound for its backlog.
func bounded(rate uint64, most time.Duration) *outgoing {
	spec := enforce.NodeSpec{ID: 5, BacklogNS: uint64(most)}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = rate
	return &outgoing{spec: spec}
}

// TestBoundFollowsTheRate checks that the bound follows the rate, is set only where it has changed enough, and ends.
func TestBoundFollowsTheRate(t *testing.T) {
	o, at := &outlet{mix: mix{share: 1}, quantum: leastQuantum, lanes: bpf.LaneOwn}, time.Now()
	look := func(after time.Duration, n *outgoing) (told bool) {
		at = at.Add(after)
		for i, bytes := range o.bound(n, at) {
			if o.backlog[i].differsFrom(bytes) {
				o.backlog[i].bytes, told = bytes, true
			}
		}
		return told
	}
	if look(0, &outgoing{}) || o.queueOf(3) != sendQueue {
		t.Errorf("without a bound a lane takes %d bytes", o.queueOf(3))
	}
	for _, c := range []struct {
		after time.Duration
		rate  uint64
		told  bool
		bytes uint32
	}{
		{due.Look, 100e3, true, 100e3},
		{due.Look, 105e3, false, 100e3},
		{due.Look, 150e3, true, 150e3},
		{due.Look, 15e3, false, 150e3},
		{2 * backlogHeld, 15e3, false, 150e3},
		{2 * backlogHeld, 15e3, true, 15e3},
		{8 * backlogHeld, 1000, false, 15e3},
		{8 * backlogHeld, 1000, true, leastQuantum},
	} {
		if told := look(c.after, bounded(c.rate, time.Second)); told != c.told || o.queueOf(3) != c.bytes {
			t.Errorf("%+v: told %t, %d bytes", c, told, o.queueOf(3))
		}
	}
	if !look(due.Look, &outgoing{}) || o.queueOf(3) != sendQueue {
		t.Errorf("the bound has ended, and a lane takes %d bytes", o.queueOf(3))
	}
}

// TestBufferFitsTheBound checks that a sender waits because of its buffer before its packets are dropped. The packets
// that the buffer takes fit into the queue of its class, including the packet that makes the buffer full.
func TestBufferFitsTheBound(t *testing.T) {
	const packet, truesize = 1428, 2304
	for _, c := range []struct {
		rate    uint64
		most    time.Duration
		sockets int
		packets int // packets that the queue takes for each socket
	}{
		{3500, time.Second, 1, 2},
		{5000, time.Second, 1, 3},
		{6000, time.Second, 1, 4},
		{10_000, time.Second, 2, 3},
		{60_000, 100 * time.Millisecond, 1, 4},
		{200_000, 50 * time.Millisecond, 1, 6},
	} {
		s := &sender{nodes: map[uint32]*outgoing{5: bounded(c.rate, c.most)}}
		r := bpf.BufferRecord{SizeBytes: 212992, QueuedBytes: packet, UsedBytes: truesize, LargestBytes: packet}
		r.Hops[0].Node, r.Hops[0].Child = 5, 77
		buffer := float64(s.bufferFor(&r, sharers{{0, 5, 77}: c.sockets}))
		if takes := int(math.Ceil(buffer / truesize)); takes != c.packets {
			t.Errorf("%+v: a buffer of %.0f bytes takes %d packets", c, buffer, takes)
		}
		bytes := float64(backlogBytes(float64(c.rate), c.most, usualShare, leastQuantum, packet))
		if fit := int(bytes / (packet + linkHeader)); fit < c.packets*c.sockets {
			t.Errorf("%+v: %d packets fit into the lane", c, fit)
		}
	}
	// The sender never waited, since packets beyond the bound were dropped.
	r := bpf.BufferRecord{SizeBytes: 212992, UsedBytes: 4608, QueuedBytes: 1 << 20}
	if !bufferDiffers(&r, 4608) {
		t.Error("a sender whose datagrams are dropped goes on")
	}
	s := &sender{nodes: map[uint32]*outgoing{5: bounded(10_000, time.Second)}}
	r.LargestBytes, r.Hops[0].Node, r.Hops[0].Child = packet, 5, 77
	if got := s.bufferFor(&r, sharers{}); got != 5.5*packet {
		t.Errorf("how much memory its datagrams take is not known, and its buffer is %d, want %.0f", got, 5.5*packet)
	}
	if r.QueuedBytes = 2856; bufferDiffers(&r, 4608) {
		t.Error("a sender of which nothing is dropped gets another buffer")
	}
}

// TestSentBacklog checks that packets of a flood wait no longer than the bound allows, from the first datagram on.
func TestSentBacklog(t *testing.T) {
	const limit = 20e3
	testutil.RequireRoot(t)
	far := elsewhere(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	spec := sending(limit)
	spec.BacklogNS = uint64(time.Second)
	must(t, k.SetNode(spec))
	release, err := k.HoldQueue(0)
	must(t, err)
	defer release()
	s := stampedFlood(t, far)
	time.Sleep(6 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := time.Duration(0)
	for _, wait := range s.waits {
		longest = max(longest, wait)
	}
	// The sender also waits in the call, until about a packet has room.
	t.Logf("%d datagrams, that waited %v at most", len(s.waits), longest)
	if longest > patient(1700*time.Millisecond) {
		t.Errorf("a datagram has waited %v", longest)
	}
	if least := 0.6 * limit * 6 / 1428; float64(len(s.waits)) < least {
		t.Errorf("%d datagrams came, want %.0f at least", len(s.waits), least)
	}
	if stats := look(t, k, 7); stats.Datagrams.Dropped.QueueFull == 0 {
		t.Error("nothing was dropped")
	}
}
