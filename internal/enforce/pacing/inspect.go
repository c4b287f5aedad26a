package pacing

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Inspect implements enforce.Figures.
func (k *Kernel) Inspect(wanted func(inode uint64, pid uint32) bool) (out []enforce.SocketLook, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.obj.ListEverySocket()
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	for _, r := range list {
		if !wanted(r.Inode, r.State.Tgid) || r.Protocol == unix.IPPROTO_MPTCP {
			continue // for MPTCP the list has the subflows instead
		}
		stats := k.socketStats([]bpf.SocketRecord{r})
		if len(stats) == 0 {
			continue // no limit holds for it
		}
		// TCP's sockets have something else in that word.
		queued := r.Protocol != unix.IPPROTO_TCP && r.State.QueuedPackets > 0
		s := enforce.SocketLook{
			SocketStats: stats[0], Inode: r.Inode, Protocol: uint16(r.Protocol),
			Loopback: r.State.Flags&bpf.SocketLoopback != 0, Static: r.State.Flags&bpf.SocketStatic != 0,
			SentBytes: r.SentBytes, ReceivedBytes: r.ReceivedBytes,
			Waits: r.UnsentBytes > 0 || queued,
		}
		s.At, s.Departs = time.Duration(r.TimeNs), time.Duration(max(r.State.DepartNs, r.State.DueNs)-r.TimeNs)
		if queued {
			s.Departs = 0 // it waits in a queue
		}
		s.Own = k.ownNode(r)
		s.Turns = k.turns(r)
		out = append(out, s)
	}
	return out, nil
}

// Probes implements enforce.Paths.
func (k *Kernel) Probes(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var s bpf.Socket
	if err := k.obj.Sockets.Lookup(uint32(fd), &s); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("look at a socket's state: %w", err)
	}
	s.Flags |= bpf.SocketProbes
	if err := k.obj.Sockets.Put(uint32(fd), &s); err != nil {
		return fmt.Errorf("write a socket's state: %w", err)
	}
	return nil
}

// ownNode returns a socket's own node, 0 = none.
func (k *Kernel) ownNode(r bpf.SocketRecord) uint32 {
	own := r.State.Path[0]
	if n, ok := k.nodes[own.Node]; ok && n.Generation == own.Generation && n.Kind == bpf.KindSocket {
		return own.Node
	}
	return 0
}

// turns asks each clock on a socket's path when the bytes of the socket's program are paid for. It computes that as
// nn_path_walk does.
func (k *Kernel) turns(r bpf.SocketRecord) (list []enforce.Turn) {
	if r.State.RateBytesPerSec > 0 && r.Protocol == unix.IPPROTO_TCP { // other sockets have a node for it
		ahead := max(time.Duration(r.State.RateClockNs-r.TimeNs), -enforce.DefaultBurst)
		list = append(list, enforce.Turn{Ahead: ahead, Burst: enforce.DefaultBurst})
	}
	apart := uint64(0)
	if r.Protocol != unix.IPPROTO_TCP {
		apart = bpf.ChildDatagrams
	}
	k.climb(r, func(h bpf.Hop, n bpf.Node, child uint64, weight, promised uint32) {
		for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
			if turn, ok := k.turn(h.Node, n, d, child|apart, weight); ok &&
				(r.State.Flags&bpf.SocketLoopback == 0 || n.Flags&bpf.NodeLoopback != 0) {
				turn.Ahead = k.promisedAhead(turn, promised)
				if n.Kind == bpf.KindSocket {
					turn.Node = 0
				}
				list = append(list, turn)
			}
		}
	})
	return list
}

// climb visits the nodes on a socket's path, innermost first, as nn_path_walk does. The callback gets the child
// that shares the node's limit, and the child's weight. It also gets the innermost node with a guarantee on the
// way, 0 = none.
func (k *Kernel) climb(r bpf.SocketRecord, visit func(h bpf.Hop, n bpf.Node, child uint64, weight, promised uint32)) {
	child, weight, promised := r.State.Child, uint32(enforce.DefaultWeight), uint32(0)
	for _, h := range r.State.Path {
		n, ok := k.nodes[h.Node]
		if !ok || n.Generation != h.Generation {
			continue
		}
		visit(h, n, child, weight, promised)
		guarantee := minUp(n)
		if n.Kind == bpf.KindDestination || n.Kind == bpf.KindSocket && guarantee == 0 { // nn_part_of_program
			continue
		}
		child, weight = childOfNode(h.Node, n.Generation), max(n.Weight, 1)
		if guarantee != 0 {
			promised = h.Node
		}
	}
}

func minUp(n bpf.Node) uint64 { return n.Limits[enforce.OwnerAdmin][enforce.Up].MinBytesPerSec }

// promisedAhead returns how far a clock is ahead for a child with a guarantee or a reservation. The guarantee is
// that of a node on the way to the clock. It computes the same as nn_guarantee_sooner.
func (k *Kernel) promisedAhead(t enforce.Turn, node uint32) time.Duration {
	n, ok := k.nodes[node]
	if !ok || n.ScopeId != 0 && n.ScopeId != t.Node {
		return t.Ahead
	}
	var g bpf.Class
	key := bpf.ClassKey{Node: t.Node, Direction: uint32(t.Direction), Child: bpf.ChildGuarantee | uint64(node)}
	if k.obj.Classes.Lookup(key, &g) != nil {
		return t.Ahead // nothing was charged to the guarantee yet
	}
	ahead := max(time.Duration(int64(g.Finish-bpf.NowNS())), -t.Burst)
	if n.Flags&bpf.NodeSliceOnly != 0 {
		return ahead
	}
	return min(ahead, t.Ahead)
}

// childOfNode returns the class of a node below another: nn_child_node.
func childOfNode(node, generation uint32) uint64 {
	return 1<<63 | uint64(generation)<<32 | uint64(node)
}

func (k *Kernel) turn(id uint32, n bpf.Node, direction uint32, child uint64, weight uint32) (t enforce.Turn, ok bool) {
	rate, burst := holding(n, direction)
	if rate == 0 {
		return t, false
	}
	t = enforce.Turn{Node: id, Direction: enforce.Direction(direction), Burst: time.Duration(float64(burst) / float64(rate) * 1e9)}
	t.Ahead = -t.Burst
	var c bpf.Clock
	var class bpf.Class
	if k.obj.Clocks.Lookup(bpf.ClockKey{Node: id, Direction: direction}, &c) != nil ||
		k.obj.Classes.Lookup(bpf.ClassKey{Node: id, Direction: direction, Child: child}, &class) != nil {
		return t, true // the child has sent nothing
	}
	t.Ahead = max(t.Ahead, paidIn(c, class, weight, rate, bpf.NowNS()))
	return t, true
}

// holding returns the lowest ceiling in a direction, and the lowest burst.
func holding(n bpf.Node, direction uint32) (rate, burst uint64) {
	lower := func(to *uint64, than uint64) {
		if than != 0 && (*to == 0 || than < *to) {
			*to = than
		}
	}
	for _, owner := range n.Limits {
		lower(&rate, owner[direction].CeilingBytesPerSec)
		lower(&burst, owner[direction].BurstBytes)
	}
	return rate, burst
}

const (
	virtualShift = 20 // NN_VTIME_SHIFT
	levelMask    = 7  // NN_LEVEL_MASK
	furthest     = (1<<34 - 1) << virtualShift
)

// paidIn returns the time from now until a class's bytes are paid for: nn_class_paid_ns.
func paidIn(c bpf.Clock, k bpf.Class, weight uint32, rate, now uint64) time.Duration {
	ahead := func(tag uint64) uint64 {
		if tag-c.Vtime > furthest {
			return 0
		}
		return tag - c.Vtime
	}
	at := float64(int64(c.TimeNs - now))
	span := ahead(k.Finish)
	if span == 0 {
		return time.Duration(at)
	}
	active := float64(c.ActiveWeight)
	if k.Weight == 0 || ahead(k.Until&^levelMask) == 0 {
		active += float64(weight)
	}
	return time.Duration(at + float64(span)*active/(1<<virtualShift)/float64(rate)*1e9)
}
