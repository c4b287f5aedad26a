package shaping

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// A node may have a bound (enforce.NodeSpec.BacklogNS) for the time that its non-TCP egress waits. The FIFO of each
// per-program class takes the bytes that the class sends in that time, and drops all beyond. Send buffers
// (send_buffer.go) are kept smaller than that FIFO, so that senders wait before anything is dropped.

const (
	// backlogHeld is a period. A queue keeps the length that a higher rate has allowed for one to two periods. A period
	// lasts at least as long as backlogPackets packets take. Adaptation lets hardly anything leave for a moment now and
	// then, and such a moment must not cost packets.
	backlogHeld    = time.Second
	backlogPackets = 8
	// A bound that changes by less than 1/backlogNear of the present one is not set again.
	backlogNear = 8
)

// backlog is the bound of the queue of one per-program class.
type backlog struct {
	bytes  uint32 // the bound that the kernel has, 0 = sendQueue
	recent recentRate
}

// recentRate is the highest recent value of a rate.
type recentRate struct {
	before, now float64 // highest in the previous period, and in this one
	since       time.Time
}

// most takes the present rate in bytes/s, and returns the highest recent one.
func (r *recentRate) most(rate float64, now time.Time) float64 {
	rate = max(rate, 1)
	period := max(backlogHeld, time.Duration(backlogPackets*usualPacket/max(r.before, r.now, rate)*1e9))
	if now.Sub(r.since) >= period {
		r.before, r.now, r.since = r.now, 0, now
	}
	r.now = max(r.now, rate)
	return max(r.before, r.now)
}

// backlogBytes returns how much the queue of a class takes that sends at a rate. The result is in bytes as the queue
// counts them; share is the part of these that are IP bytes. Two full packets always fit, one of the largest packets
// (quantum), and two of the largest datagrams. A datagram in fragments arrives as a whole or not at all.
func backlogBytes(rate float64, most time.Duration, share float64, quantum, datagram uint32) uint32 {
	least := max(2*(usualPacket+linkHeader), float64(quantum), 2*(float64(datagram)/share+linkHeader))
	return uint32(math.Ceil(min(max(rate*most.Seconds()/share, least), sendQueue)))
}

// laneRates returns how fast each per-program class sends while it has a backlog, in IP bytes/s. An unused class counts
// as one more besides the used ones.
func (o *outlet) laneRates(n *outgoing) (rates [lanes]float64) {
	limit := float64(upCeiling(n.spec))
	if o.lanes == 0 { // all programs share one class
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

// bound returns the bound of each per-program class of a node from now on. A 0 means sendQueue.
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

// queueOf returns how many bytes the queue of a per-program class should take.
func (o *outlet) queueOf(i int) uint32 { return queueFor(o.backlog[i].bytes) }

// queueFor returns how many bytes a queue with that bound takes.
func queueFor(bound uint32) uint32 {
	if bound != 0 {
		return bound
	}
	return sendQueue
}

// differsFrom reports whether a new bound differs enough to be set.
func (b *backlog) differsFrom(bytes uint32) bool {
	if b.bytes == 0 || bytes == 0 {
		return b.bytes != bytes
	}
	return max(bytes, b.bytes)-min(bytes, b.bytes) > b.bytes/backlogNear
}

// boundLanes sets the queues of a node's per-program classes whose bounds have changed.
func (p *sendPlace) boundLanes(id uint32, o *outlet, n *outgoing, now time.Time) error {
	var changed []int
	bytes, minors := o.bound(n, now), o.minors(id)
	for i := range minors {
		if o.backlog[i].differsFrom(bytes[i]) {
			changed = append(changed, i)
		}
	}
	if len(changed) == 0 {
		o.unbounded = false
		return nil
	}
	err := p.Within(func() error {
		var errs []error
		for _, i := range changed {
			if err := p.pair.SetQueue(minors[i], queueFor(bytes[i])); err != nil {
				errs = append(errs, fmt.Errorf("bound what waits of node %d: %w", id, err))
				continue
			}
			o.backlog[i].bytes = bytes[i]
		}
		return errors.Join(errs...)
	})
	o.unbounded = err != nil // then the next look tries again
	return err
}

// boundAnew calls boundLanes if the bound of the node has changed. A node with a bound gets per-program classes at
// once. Otherwise the first program would fill the class that all programs share.
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

// boundBacklogs calls boundLanes for all nodes with a bound, also where nothing is sent now: a flood may begin. It also
// does so where a bound could not be set or lifted.
func (s *sender) boundBacklogs() error {
	now := time.Now()
	var errs []error
	for id, n := range s.nodes {
		for _, p := range s.places {
			if o := p.outlets[id]; o != nil && (n.spec.BacklogNS != 0 || o.unbounded) {
				errs = append(errs, p.boundLanes(id, o, n, now))
			}
		}
	}
	return errors.Join(errs...)
}

// noteLargest records the largest datagram of a socket, for each node with a bound on the socket's path.
func (s *sender) noteLargest(r *bpf.BufferRecord) {
	for _, h := range r.Hops {
		if o := s.outletAt(r.Netns, h.Node); o != nil && o.backlogNS != 0 {
			o.datagram = max(o.datagram, r.LargestBytes)
		}
	}
}

// lostSome reports whether a queue dropped packets of a socket, so that its sender did not wait. QueuedBytes still
// counts the dropped packets.
func lostSome(r *bpf.BufferRecord) bool { return r.QueuedBytes/2 > r.UsedBytes }

// outletAt returns a node's class in a network namespace, nil if it has none there.
func (s *sender) outletAt(netns, node uint32) *outlet {
	if p := s.places[netns]; p != nil {
		return p.outlets[node]
	}
	return nil
}

// shareAt returns the part of IP bytes in the bytes that the queue of a node there counts.
func (s *sender) shareAt(netns, node uint32) float64 {
	if o := s.outletAt(netns, node); o != nil {
		return o.mix.share
	}
	return usualShare
}

// roomIn returns how many IP bytes one socket may have in the queue of a node with a bound, where several sockets of a
// program share it. The result is half a packet less than the packets that fit. A sender waits when its buffer is full,
// not when its next packet does not fit. With a larger buffer its datagrams would be dropped, and it would not wait.
func roomIn(rate float64, most time.Duration, share float64, sockets int, packet uint32) float64 {
	if packet == 0 {
		packet = usualPacket
	}
	bytes := float64(backlogBytes(rate, most, share, 0, packet)) / float64(sockets)
	packets := max(math.Floor(bytes/(float64(packet)/share+linkHeader)), 1)
	return (packets - 0.5) * float64(packet)
}
