package observe

import (
	"path"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// Only the clock of a limit counts bytes. A node without a limit of its own is counted only if it has a share of an
// enclosing limit. Other nodes have figures of 0, whatever they send, and lists do not show these.

// countsReceived reports whether a node's received bytes are counted: it needs a limit of its own on them.
func (s *Snapshot) countsReceived(n *Node) bool {
	down := slices.ContainsFunc(n.Holding[:], func(of limit.Limit) bool { return of.Down != 0 })
	return down || n.Holding.HasTotal() && !s.meterOff(n)
}

// countsSent reports whether a node's sent bytes are counted. The node needs a limit or a reservation of its own, or a
// share of an enclosing limit (asChild in enforce/pacing).
func (s *Snapshot) countsSent(n *Node, around *enclosures, now Sample) bool {
	if n.Holding.Lowest(enforce.Up) != 0 || n.ReservedOn != 0 {
		return true
	}
	if n.Kind == enforce.KindDestination {
		return false // its programs, not the node, have a share of the enclosing limit
	}
	limited := func(id uint32) bool {
		outer := s.Node(id)
		return id != 0 && outer != nil && outer.Holding.Lowest(enforce.Up) != 0
	}
	for id, deep := now.Nodes[n.ID].Parent, 0; id != 0 && deep < enforce.MostNested; deep++ {
		if limited(id) {
			return true
		}
		id = now.Nodes[id].Parent
	}
	if n.Holding.Weight() == limit.DefaultWeight && n.Guaranteed[enforce.Up] == 0 {
		return false // the kernel side seeks enclosing limits of such a node among trees of processes only
	}
	if limited(around.host()) {
		return n.Kind != enforce.KindLink && n.Kind != enforce.KindHost
	}
	switch n.Kind {
	case enforce.KindTree:
		many := n.Key == 0 && n.UID == 0
		return !many && (limited(around.user(n.UID)) || around.anyCgroup(around.cgroupOf(n), limited))
	case enforce.KindCgroup:
		return around.anyCgroup(path.Dir(n.Dir), limited)
	}
	return false
}
