package daemon

import (
	"path"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// Only the clock of a limit counts bytes. A node without a limit of its own is counted only if it has a share of an
// enclosing limit. Other nodes have figures of 0, whatever they send, and lists do not show these.

// countsReceived reports whether a node's received bytes are counted: it needs a limit of its own on them.
func (d *Daemon) countsReceived(n *node) bool {
	w := n.holding()
	down := slices.ContainsFunc(w[:], func(of limit.Limit) bool { return of.Down != 0 })
	return down || w.HasTotal() && !d.meterOff(n)
}

// countsSent reports whether a node's sent bytes are counted. The node needs a limit or a reservation of its own, or a
// share of an enclosing limit (asChild in enforce/pacing). The caller holds d.mu.
func (d *Daemon) countsSent(n *node, around *enclosures, now sample) bool {
	if n.sendingLimit() != 0 || n.reserved.link != 0 {
		return true
	}
	if n.res.Kind == enforce.KindDestination {
		return false // its programs, not the node, have a share of the enclosing limit
	}
	limited := func(id uint32) bool { return id != 0 && d.nodes[id] != nil && d.nodes[id].sendingLimit() != 0 }
	for id, deep := now.nodes[n.id].Parent, 0; id != 0 && deep < enforce.MostNested; deep++ {
		if limited(id) {
			return true
		}
		id = now.nodes[id].Parent
	}
	if n.holding().Weight() == limit.DefaultWeight && n.promised() == 0 {
		return false // the kernel side seeks enclosing limits of such a node among trees of processes only
	}
	if limited(around.host) {
		return n.res.Kind != enforce.KindLink && n.res.Kind != enforce.KindHost
	}
	switch n.res.Kind {
	case enforce.KindTree:
		many := n.res.Key == 0 && n.res.UID == 0
		return !many && (limited(around.users[n.res.UID]) || around.anyCgroup(around.cgroupOf(n), limited))
	case enforce.KindCgroup:
		return around.anyCgroup(path.Dir(n.res.Dir), limited)
	}
	return false
}

// cgroupOf returns the folder of the cgroup that a process is in, "" if it is not known.
func (e *enclosures) cgroupOf(n *node) string {
	if e.mount == "" {
		return ""
	}
	rel, err := e.resolver.ProcessCgroup(int(n.res.Key))
	if err != nil {
		return ""
	}
	return e.mount + rel
}

// anyCgroup reports whether a node on a folder, or on one that encloses it, fulfils a condition.
func (e *enclosures) anyCgroup(dir string, is func(id uint32) bool) bool {
	for ; len(dir) > len(e.mount) && e.mount != ""; dir = path.Dir(dir) {
		if is(e.cgroups[dir]) {
			return true
		}
	}
	return false
}
