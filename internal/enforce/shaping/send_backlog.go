package shaping

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// What a node with a bound (enforce.NodeSpec.BacklogNS) sends waits for that long at most: the FIFO of each lane
// takes what the lane sends in that time, and drops what comes beyond. Senders wait before that by their buffers
// (send_buffer.go), which are kept smaller than what their lane takes.

const (
	// backlogHeld is how long a lane stays as long as a higher rate has allowed, twice at most, and at least the
	// time of backlogPackets: adapt sends hardly anything for a moment now and then, at which nothing is to be lost.
	backlogHeld    = time.Second
	backlogPackets = 8
	// backlogNear is what part of its length a lane has to differ by to be told.
	backlogNear = 8
)

// backlog is the bound of what waits in a lane.
type backlog struct {
	bytes  uint32 // as the kernel was told, 0 = sendQueue
	recent recentRate
}

// recentRate is the highest that a rate was of late.
type recentRate struct {
	before, now float64 // in the period before, and in this one
	since       time.Time
}

// most takes the present rate in bytes/s, and returns the highest.
func (r *recentRate) most(rate float64, now time.Time) float64 {
	rate = max(rate, 1)
	period := max(backlogHeld, time.Duration(backlogPackets*usualPacket/max(r.before, r.now, rate)*1e9))
	if now.Sub(r.since) >= period {
		r.before, r.now, r.since = r.now, 0, now
	}
	r.now = max(r.now, rate)
	return max(r.before, r.now)
}

// backlogBytes is how much a lane takes that sends at a rate, in bytes as the queue counts them, of which share are
// IP's. Two full packets always fit, and one of the largest (quantum), and two of the largest datagrams: what is in
// fragments arrives as a whole or not at all.
func backlogBytes(rate float64, most time.Duration, share float64, quantum, datagram uint32) uint32 {
	least := max(2*(usualPacket+linkHeader), float64(quantum), 2*(float64(datagram)/share+linkHeader))
	return uint32(math.Ceil(min(max(rate*most.Seconds()/share, least), sendQueue)))
}

// laneRates is how fast each lane sends while something waits in it, in IP bytes/s. One that nobody uses counts as
// one more beside those that are used.
func (o *outlet) laneRates(n *outgoing) (rates [lanes]float64) {
	limit := float64(upCeiling(n.spec))
	if o.lanes == 0 { // one is all that there is
		rates[0] = limit
		return rates
	}
	used := 0
	for i := range o.part {
		if !o.part[i].idle() {
			used++
		}
	}
	for i := range rates {
		p := &o.part[i]
		due, known := n.rates[p.child]
		switch {
		case p.idle():
			rates[i] = limit / float64(used+1)
		case known:
			rates[i] = min(due, limit)
		default:
			rates[i] = limit / float64(used)
		}
	}
	return rates
}

// bound is what each lane of a node takes from now on; 0 = as much as those without a bound.
func (o *outlet) bound(n *outgoing, now time.Time) (bytes [lanes]uint32) {
	if o.backlogNS = n.spec.BacklogNS; o.backlogNS == 0 {
		return bytes
	}
	for i, rate := range o.laneRates(n) {
		most := o.backlog[i].recent.most(rate, now)
		bytes[i] = backlogBytes(most, time.Duration(o.backlogNS), o.mix.share, o.quantum, o.datagram)
	}
	return bytes
}

// queueOf is how many bytes a lane takes, as it is to be told.
func (o *outlet) queueOf(i int) uint32 {
	if bytes := o.backlog[i].bytes; bytes != 0 {
		return bytes
	}
	return sendQueue
}

// differsFrom says whether a bound is worth being told anew.
func (b *backlog) differsFrom(bytes uint32) bool {
	if b.bytes == 0 || bytes == 0 {
		return b.bytes != bytes
	}
	return max(bytes, b.bytes)-min(bytes, b.bytes) > b.bytes/backlogNear
}

// boundLanes has the lanes of a node take as much as they may.
func (p *sendPlace) boundLanes(id uint32, o *outlet, n *outgoing, now time.Time) error {
	var changed []int
	bytes, minors := o.bound(n, now), o.minors(id)
	for i := range minors {
		if b := &o.backlog[i]; b.differsFrom(bytes[i]) {
			b.bytes, changed = bytes[i], append(changed, i)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return p.within(func() error {
		var errs []error
		for _, i := range changed {
			if err := p.pair.setQueue(minors[i], o.queueOf(i)); err != nil {
				o.backlog[i].bytes = 0 // it is told again
				errs = append(errs, fmt.Errorf("bound what waits of node %d: %w", id, err))
			}
		}
		return errors.Join(errs...)
	})
}

// boundAnew does so if the bound is another than it was. The node gets its lanes at once, since else the first
// program would fill that of all.
func (p *sendPlace) boundAnew(id uint32, o *outlet, n *outgoing) error {
	if n.spec.BacklogNS != 0 && o.lanes == 0 && !o.unlaned && n.spec.Kind != enforce.KindSocket {
		if err := p.giveLanes(id, o); err != nil {
			return err
		}
	}
	if o.backlogNS == n.spec.BacklogNS {
		return nil
	}
	return p.boundLanes(id, o, n, time.Now())
}

// boundBacklogs does so for all nodes that have a bound, also where nothing is sent now: a flood may begin.
func (s *sender) boundBacklogs() error {
	now := time.Now()
	var errs []error
	for id, n := range s.nodes {
		if n.spec.BacklogNS == 0 {
			continue
		}
		for _, p := range s.places {
			if o := p.outlets[id]; o != nil {
				errs = append(errs, p.boundLanes(id, o, n, now))
			}
		}
	}
	return errors.Join(errs...)
}

// noteLargest learns how large the datagrams are of a socket of which something waits.
func (s *sender) noteLargest(r *bpf.BufferRecord) {
	for _, h := range r.Hops {
		if o := s.outletAt(r.Netns, h.Node); o != nil && o.backlogNS != 0 {
			o.datagram = max(o.datagram, r.LargestBytes)
		}
	}
}

// lostSome reports whether something of a socket was dropped in a queue, and so its sender did not wait: that is
// still in the count of what waits.
func lostSome(r *bpf.BufferRecord) bool { return r.QueuedBytes/2 > r.UsedBytes }

// outletAt is a node's class in a network namespace, nil if it has none there.
func (s *sender) outletAt(netns, node uint32) *outlet {
	if p := s.places[netns]; p != nil {
		return p.outlets[node]
	}
	return nil
}

// shareAt is the part of IP's in the bytes that wait there.
func (s *sender) shareAt(netns, node uint32) float64 {
	if o := s.outletAt(netns, node); o != nil {
		return o.mix.share
	}
	return usualShare
}

// roomIn is what a socket may have waiting of a node that has a bound, among some of the same program, in IP bytes:
// half a packet less than those that fit, since a sender waits when its buffer is full and not when the next does not
// fit. Were there more, its datagrams would be dropped, and it would not wait.
func roomIn(rate float64, most time.Duration, share float64, sockets int, packet uint32) float64 {
	if packet == 0 {
		packet = usualPacket
	}
	bytes := float64(backlogBytes(rate, most, share, 0, packet)) / float64(sockets)
	packets := max(math.Floor(bytes/(float64(packet)/share+linkHeader)), 1)
	return (packets - 0.5) * float64(packet)
}
