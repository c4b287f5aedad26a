package shaping

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// A node's backlog is kept in per-program classes, which the code calls lanes. Each program below the node has one, and
// HTB serves them in turn. They are below the node's class, which has the rate. The first per-program class is for all
// programs without their own. It is the only one until the node has packets in the queue.

const (
	lanes = uint32(len(bpf.Outflow{}.Lane))
	// mostLaned is how many nodes may have more than the first per-program class in one network namespace.
	mostLaned = (1<<16 - bpf.LaneOwn) / lanes
	// leastQuantum and mostQuantum bound what a per-program class sends in a turn. A turn takes at least the largest
	// packet. Otherwise programs with larger packets would get more than others.
	leastQuantum, mostQuantum = 2 * (usualPacket + linkHeader), 1 << 17
	// mostWeighed bounds what a class sends in a turn, which grows in proportion to its weight.
	mostWeighed = 1 << 20
	// laneEmpty is NN_LANE_EMPTY_NS of bpf/send_types.h.
	laneEmpty = 2 * time.Second
	// A packet that goes round at a gate is served before all per-program classes.
	gatePriority, lanePriority = 0, 1
)

// minors returns the minor numbers of a node's per-program classes.
func (o *outlet) minors(id uint32) []uint32 {
	out := []uint32{bpf.LaneFirst + id}
	for i := uint32(1); o.lanes != 0 && i < lanes; i++ {
		out = append(out, o.lanes+i)
	}
	return out
}

// below returns the minor numbers of all classes below a node's: the per-program classes, and the class in which a
// packet goes round.
func (o *outlet) below(id uint32) []uint32 {
	out := o.minors(id)
	if o.lanes != 0 {
		out = append(out, o.lanes)
	}
	return out
}

// setLanes makes the per-program classes that a node should have, or changes what they send in a turn.
func (p *sendPlace) setLanes(id uint32, o *outlet, queue bool) error {
	set := func() error {
		for i, minor := range o.minors(id) {
			bytes := uint32(0) // keep the queue
			if queue {
				bytes = o.queueOf(i)
			}
			o.turn[i] = o.quantumOf(i)
			if err := p.pair.SetBelow(id, minor, o.turn[i], lanePriority, bytes); err != nil {
				return err
			}
		}
		return nil
	}
	if !queue {
		return set()
	}
	return p.Within(set)
}

// tuneLanes gives a node that has had packets in the queue a class for each program. Each class sends the largest
// packet in a turn. A single socket has no programs to tell apart, and gets no such classes.
func (p *sendPlace) tuneLanes(n *outgoing, o *outlet, f *bpf.Outflow) error {
	id := n.spec.ID
	larger := f.LargestBytes+linkHeader > o.quantum && o.quantum != mostQuantum
	if larger {
		o.quantum = min(f.LargestBytes+linkHeader, mostQuantum)
	}
	if o.lanes == 0 && !o.unlaned && n.spec.Kind != enforce.KindSocket {
		if err := p.giveLanes(id, o); err != nil || o.lanes != 0 {
			return err
		}
	}
	if !larger {
		return nil
	}
	return p.setLanes(id, o, false)
}

// giveLanes gives a node a class for each program, if minor numbers are left.
func (p *sendPlace) giveLanes(id uint32, o *outlet) error {
	o.lanes = p.freeLanes()
	o.unlaned = o.lanes == 0
	if o.unlaned {
		return nil
	}
	if err := p.setLanes(id, o, true); err != nil {
		return err
	}
	if err := p.s.obj.Lanes.Put(p.key(id), o.lanes); err != nil {
		return fmt.Errorf("enter the lanes of node %d: %w", id, err)
	}
	return nil
}

// quantumOf returns what a per-program class sends in a turn, by the weight of its child. The class with the least
// weight sends the largest packet.
func (o *outlet) quantumOf(i int) uint32 {
	weight := o.part[i].weight
	least := weight
	for j := range o.part {
		if p := &o.part[j]; p.weight != 0 && !p.idle() {
			least = min(least, p.weight)
		}
	}
	if weight == 0 {
		return o.quantum
	}
	return uint32(min(uint64(o.quantum)*uint64(weight)/uint64(least), mostWeighed))
}

// weighLanes has per-program classes served by their weights, where these have changed.
func (p *sendPlace) weighLanes(id uint32, o *outlet) error {
	for i, minor := range o.minors(id) {
		quantum := o.quantumOf(i)
		if quantum == o.turn[i] || o.part[i].idle() {
			continue
		}
		const near = 32 // smallest change as a part of a turn: a rate is never quite the same
		if off := int64(quantum) - int64(o.turn[i]); o.part[i].byRate && max(off, -off) < int64(o.turn[i]/near) {
			continue
		}
		if err := p.pair.SetBelow(id, minor, quantum, lanePriority, 0); err != nil {
			return err
		}
		o.turn[i] = quantum
	}
	return nil
}

// freeLanes returns the first of a range of minor numbers that no node here has, 0 = none is left.
func (p *sendPlace) freeLanes() uint32 {
	used := map[uint32]bool{}
	for _, o := range p.outlets {
		used[o.lanes] = true
	}
	for i := range mostLaned {
		if at := bpf.LaneOwn + i*lanes; !used[at] {
			return at
		}
	}
	return 0
}

// standing adds up HTB's figures of all classes below a node's.
func (o *outlet) standing(id uint32, queues map[uint32]queuepair.Standing) (sum queuepair.Standing) {
	for _, minor := range o.below(id) {
		q := queues[minor]
		sum.Backlog += q.Backlog
		sum.Packets += q.Packets
		sum.Drops += q.Drops
	}
	return sum
}
