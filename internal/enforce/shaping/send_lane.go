package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// What waits of a node has lanes, one for each program below it, which are served
// in turn: classes below the node's, which has the rate. The first lane is of those
// that have no own, and all that there is until something waits.

const (
	lanes = uint32(len(bpf.Outflow{}.Lane))
	// mostLaned is how many nodes have lanes of their own in one place.
	mostLaned = (1<<16 - bpf.LaneOwn) / lanes
	// A lane sends so much in a turn, or the largest packet: of packets that are
	// larger some programs would get more than others.
	leastQuantum, mostQuantum = 2 * (usualPacket + linkHeader), 1 << 17
	// Of a larger weight, a lane sends as much more, up to this.
	mostWeighed = 1 << 20
	// laneEmpty is NN_LANE_EMPTY_NS.
	laneEmpty = 2 * time.Second
	// a lane's own bounds bound nothing
	laneRate, laneCeil = 1, drained
	// What goes round by a gate is served before all lanes.
	gatePriority, lanePriority = 0, 1
)

// minors are the numbers of the classes below a node's.
func (o *outlet) minors(id uint32) []uint32 {
	out := []uint32{bpf.LaneFirst + id}
	for i := uint32(1); o.lanes != 0 && i < lanes; i++ {
		out = append(out, o.lanes+i)
	}
	return out
}

// below are the numbers of all classes below a node's: of its lanes, and of what goes round.
func (o *outlet) below(id uint32) []uint32 {
	out := o.minors(id)
	if o.lanes != 0 {
		out = append(out, o.lanes)
	}
	return out
}

// setLane makes a lane, or changes what it sends in a turn.
func (p *pair) setLane(node, minor, quantum, queueBytes uint32) error {
	return p.setBelow(node, minor, quantum, lanePriority, queueBytes)
}

// setBelow makes or changes a class below a node's, and its queue unless queueBytes is 0.
func (p *pair) setBelow(node, minor, quantum, priority, queueBytes uint32) error {
	err := p.nl.ClassReplace(&netlink.HtbClass{
		ClassAttrs: p.attrs(classHandle(node), minor),
		Rate:       laneRate, Ceil: laneCeil, Buffer: 1, Cbuffer: 1 << 20, Quantum: quantum, Prio: priority,
	})
	if err == nil && queueBytes != 0 {
		err = p.setQueue(minor, queueBytes)
	}
	if err != nil {
		return fmt.Errorf("set a lane of node %d: %w", node, err)
	}
	return nil
}

// removeLane removes a lane with what waits in it.
func (p *pair) removeLane(node, minor uint32) error {
	err := p.nl.ClassDel(&netlink.HtbClass{ClassAttrs: p.attrs(classHandle(node), minor)})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove a lane of node %d: %w", node, err)
	}
	return nil
}

// setLanes makes the lanes that a node has to have, or changes what they send in a
// turn.
func (p *sendPlace) setLanes(id uint32, o *outlet, queue bool) error {
	set := func() error {
		for i, minor := range o.minors(id) {
			bytes := uint32(0) // as it is
			if queue {
				bytes = o.queueOf(i)
			}
			o.turn[i] = o.quantumOf(i)
			if err := p.pair.setLane(id, minor, o.turn[i], bytes); err != nil {
				return err
			}
		}
		return nil
	}
	if !queue {
		return set()
	}
	return p.within(set)
}

// tuneLanes gives a node in whose queue something came lanes for each program, and
// has each send its largest packet in a turn. A socket by itself has no programs to
// tell apart.
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

// giveLanes gives a node lanes for each program, if there are some left.
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

// quantumOf is what a lane sends in a turn, by the weight of whose it is: that of the
// least weight its largest packet.
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

// weighLanes has lanes be served by their weights, where these have changed.
func (p *sendPlace) weighLanes(id uint32, o *outlet) error {
	for i, minor := range o.minors(id) {
		quantum := o.quantumOf(i)
		if quantum == o.turn[i] || o.part[i].idle() {
			continue
		}
		const near = 32 // of a rate, which is never quite the same
		if off := int64(quantum) - int64(o.turn[i]); o.part[i].byRate && max(off, -off) < int64(o.turn[i]/near) {
			continue
		}
		if err := p.pair.setLane(id, minor, quantum, 0); err != nil {
			return err
		}
		o.turn[i] = quantum
	}
	return nil
}

// freeLanes are numbers that no node here has, 0 = there are none.
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

// standing sums up what HTB says of a node's lanes.
func (o *outlet) standing(id uint32, queues map[uint32]standing) (sum standing) {
	for _, minor := range o.below(id) {
		q := queues[minor]
		sum.backlog += q.backlog
		sum.packets += q.packets
		sum.drops += q.drops
	}
	return sum
}
