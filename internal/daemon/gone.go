package daemon

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/scope"
)

// endGone lifts the nodes that have neither a member nor a socket that still drains. Users, units and the host stay
// whatever happens. The caller holds d.mu.
func (d *Daemon) endGone() {
	var gone []*node
	for n := range d.nodes.All() {
		if d.subjectGone(n) {
			d.learnProgram(n) // the name of the program at its end
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return
	}
	// The statistics are read after the ends were seen, so that a member that was born before them counts.
	stats, err := d.kernel.Stats()
	if err != nil {
		d.complain(err)
		return
	}
	sockets, err := d.kernel.Sockets()
	if err != nil {
		d.complain(err)
		return
	}
	needed := make(map[uint32]bool)
	for _, s := range stats {
		needed[s.ID] = s.Processes > 0
	}
	for _, s := range sockets {
		for _, id := range s.Nodes {
			needed[id] = true
		}
	}
	var ended []desired.Change
	destined := false
	for _, n := range gone {
		if needed[n.id] {
			continue
		}
		if err := d.unapply(n); err != nil {
			d.once(n, err)
			continue
		}
		d.forgetNode(n.id)
		d.outerGone(n)
		destined = destined || n.destined()
		ended = append(ended, desired.Change{Gone: n.id})
		n.watch.Stop()
		d.leaveScope(n)
		d.observe.Outdate()
		d.tellOf(n, api.EventLimitEnded, "")
		d.log.Info("limit ended with its subject", "subject", n.res.Subject.String(), "node", n.id)
	}
	if destined {
		d.destinations.Follow()
	}
	d.destinations.EndGone()
	d.writeChange(false, ended...)
}

// endedTrees returns the ids of processes that have ended, with their descendants, and that promise something. While
// their connections drain their limits hold for these, but what was guaranteed to them is promised to nobody any more. A
// new member may bring back what a group promises: groupLimit admits it again. The caller holds d.mu.
func (d *Daemon) endedTrees() map[uint32]bool {
	var ended map[uint32]bool
	for n := range d.nodes.All() {
		if n.res.Kind == enforce.KindTree && !n.PromisesNothing() && d.subjectGone(n) {
			if ended == nil {
				ended = make(map[uint32]bool)
			}
			ended[n.id] = false
		}
	}
	if ended == nil {
		return nil // the counts of all nodes need not be read
	}
	stats, err := d.kernel.Stats()
	if err != nil {
		d.complain(err)
	}
	for _, s := range stats {
		if _, ok := ended[s.ID]; ok {
			ended[s.ID] = s.Processes == 0
		}
	}
	return ended
}

// subjectGone reports whether the process has ended or the cgroup is gone.
func (d *Daemon) subjectGone(n *node) bool {
	switch {
	case n.res.Kind == enforce.KindTree && n.watch != nil:
		return n.watch.HasEnded()
	case n.res.Kind == enforce.KindTree:
		return !d.resolver.Alive(int(n.res.Key), n.res.StartBoottimeNS)
	case n.res.Kind == enforce.KindLink:
		return n.nowhere
	case n.res.Kind != enforce.KindCgroup || n.res.Pending() || n.res.Named():
		return false
	case n.scope != nil && n.scope.Made && scope.IsEmpty(n.res.Dir):
		return true
	}
	key, err := identity.CgroupID(n.res.Dir)
	return err != nil || key != n.res.Key
}
