package observe

import (
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// IsOutermost reports whether no limit can enclose the node, so that it cannot have a part of one. No link encloses the
// host, because the host sends by several.
func (n *Node) IsOutermost() bool { return n.Kind == enforce.KindHost || n.Kind == enforce.KindLink }

// LimitsAround returns the nodes with a limit on sending, or receiving, of which n's guarantee is a part, innermost
// first. If an enclosing node has a guarantee itself, the inner one is a part of that. The node need not be among those
// of the snapshot.
func (o *Observer) LimitsAround(s *Snapshot, n *Node, way enforce.Direction) (list []*Node) {
	if link := s.Node(n.ReservedOn); link != nil && way == enforce.Up {
		return []*Node{link}
	}
	for _, around := range o.Around(s, s.inner(n), n.Resolved, Sample{}) {
		if around.ID == n.ID || n.IsOutermost() {
			continue
		}
		if around.Holding.Lowest(way) != 0 {
			list = append(list, around)
		}
		if around.Guaranteed[way] != 0 {
			break
		}
	}
	return list
}

// inner returns the present state of a node, if it exists, as the beginning of a list of what encloses it.
func (s *Snapshot) inner(n *Node) []*Node {
	if known := s.Node(n.ID); known != nil {
		return []*Node{known}
	}
	return nil
}

// IsInsideLimit reports whether a limit encloses a node. A limit on a link by which the node may send counts, too.
func (o *Observer) IsInsideLimit(s *Snapshot, n *Node) bool {
	for _, around := range o.Around(s, s.inner(n), n.Resolved, Sample{}) {
		if around.ID != n.ID && (around.Holding.Lowest(enforce.Up) != 0 || around.Holding.Lowest(enforce.Down) != 0) {
			return true
		}
	}
	return false
}

// promise is a node's guarantee, and the limits that it is a part of.
type promise struct {
	of          *Node
	bytesPerSec uint64
	limits      []*Node
}

// Guarantees are all guarantees of one direction.
type Guarantees struct {
	nodes   []promise
	sockets []enforce.SocketReservation // for sent traffic only
}

// Guarantees finds them. For each guarantee it searches for the enclosing limits, so a caller that asks about several
// limits calls it once.
func (o *Observer) Guarantees(s *Snapshot, way enforce.Direction) Guarantees {
	return o.guaranteesOf(s, way, func(*Node) bool { return true })
}

// GuaranteedIn returns Guarantees(s, way).In(outer, but). It searches only for what encloses those nodes that may be
// inside.
func (o *Observer) GuaranteedIn(s *Snapshot, outer, but uint32, way enforce.Direction) uint64 {
	of := s.Node(outer)
	return o.guaranteesOf(s, way, func(inner *Node) bool { return of != nil && of.mayEnclose(inner.Kind) }).In(outer, but)
}

// mayEnclose reports whether the node can enclose nodes of a kind: see Around.
func (n *Node) mayEnclose(inner enforce.Kind) bool {
	switch n.Kind {
	case enforce.KindTree, enforce.KindUser:
		return inner == enforce.KindTree
	case enforce.KindCgroup:
		return inner == enforce.KindTree || inner == enforce.KindCgroup
	}
	return true
}

// guaranteesOf returns the guarantees of some nodes, and of sockets.
func (o *Observer) guaranteesOf(s *Snapshot, way enforce.Direction, some func(*Node) bool) (g Guarantees) {
	for _, n := range s.nodesWith(indexKey{kind: keyGuarantee}) {
		if rate := n.Guaranteed[way]; rate != 0 && some(n) {
			g.nodes = append(g.nodes, promise{n, rate, o.LimitsAround(s, n, way)})
		}
	}
	if way == enforce.Up {
		g.sockets = o.SocketReservations()
	}
	return g
}

// SocketReservations lists the sockets that have a reservation.
func (o *Observer) SocketReservations() []enforce.SocketReservation {
	list, err := o.kernel.Reserved()
	if err != nil {
		o.log.Warn("what sockets have reserved is not known", "err", err)
	}
	return list
}

// In returns the sum of the guarantees inside a node except those of one, in bytes/s. The nodes are named by their ids.
func (g Guarantees) In(outer, but uint32) (sum uint64) {
	for _, p := range g.nodes {
		if p.of.ID == but || p.of.ID == outer {
			continue
		}
		for _, limit := range p.limits {
			if limit.ID == outer {
				sum += p.bytesPerSec
			}
		}
	}
	for _, s := range g.sockets {
		if s.Link == outer {
			sum += s.BytesPerSec
		}
	}
	return sum
}

// Only returns the guarantees of some nodes, by their ids.
func (g Guarantees) Only(ids map[uint32]bool) (some Guarantees) {
	for _, p := range g.nodes {
		if ids[p.of.ID] {
			some.nodes = append(some.nodes, p)
		}
	}
	return some
}

// promises returns how much of a link's limit on sending is promised, and the most that may be. all finds the
// guarantees of sent traffic.
func (n *Node) promises(all func() Guarantees) (promised, most uint64) {
	rate := n.Holding.Lowest(enforce.Up)
	if n.Kind != enforce.KindLink || rate == 0 {
		return 0, 0
	}
	return all().In(n.ID, n.ID), limit.MostGuaranteed(rate)
}
