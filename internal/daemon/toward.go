package daemon

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/source/prefixlists"
)

// Limits that commands set on a destination have nodes like those of rules. Each node belongs to one owner; another
// owner's limit on the same destination is another node. A node applies to the connections of the subject that it is
// under. The kernel finds these by the subject's node on their paths. The subject itself may have no limit.

// toward is the destination of a node that a command set.
type toward struct {
	selector destination.Selector
	names    map[string][]netip.Addr // addresses of the names, as the state file has them
	scope    *node                   // the node that it is under; nil = all traffic that the owner may limit
	leaving  bool
	met      bool // not named by an owner, but followed since a program sent there (adaptation/area.go)

	each   uint32    // id of the limit for each address that it is a part of, 0 = it was set by itself
	volume uint64    // of such a node: its volume at the last look, in bytes
	usedAt time.Time // the last time at which the volume had changed
}

// owner returns the owner of a node that has only one owner.
func (n *node) owner() enforce.Owner {
	if n.IsOnlyUsers() {
		return enforce.OwnerUser
	}
	return enforce.OwnerAdmin
}

// book returns the number of the rule set in which the kernel side looks for the node.
func (n *node) book() uint32 {
	if n.IsOnlyUsers() {
		return n.userUID
	}
	return enforce.BookAdmin
}

// towardKey identifies the node among all nodes, for this daemon and the next.
func towardKey(book uint32, s api.Subject, under identity.Resolved) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", book, s.ID, under.StartBoottimeNS)
	return h.Sum64()
}

// listKey identifies the list of prefixes in the file of a node's destination; without a file it identifies none.
func (n *node) listKey() prefixlists.Key {
	return prefixlists.Key{RuleSet: n.book(), Path: n.to.selector.List}
}

// loadLists reads the stored lists of the limits. It logs a list that cannot be read.
func (d *Daemon) loadLists() {
	for n := range d.nodes.All() {
		if n.to == nil || n.to.selector.List == "" {
			continue
		}
		if err := d.lists.Load(n.listKey()); err != nil {
			d.once(n, err)
		}
	}
}

// dropLists forgets the lists that no limit uses any more. The caller holds d.mu.
func (d *Daemon) dropLists() {
	used := map[prefixlists.Key]bool{}
	for n := range d.nodes.All() {
		if n.to != nil && n.to.selector.List != "" {
			used[n.listKey()] = true
		}
	}
	d.lists.RemoveUnused(used)
}

// endToward lifts the destination limits under a subject that is gone. The caller holds d.mu.
func (d *Daemon) endToward() {
	var gone []*node
	for n := range d.nodes.All() {
		if n.to != nil && n.to.scope != nil && d.nodes.Get(n.to.scope.id) != n.to.scope {
			n.to.leaving = true
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return
	}
	d.destinations.Outdate()
	d.destinations.Follow()
	for _, n := range gone {
		if err := d.drop(n); err != nil {
			d.once(n, err)
			continue
		}
		d.tellOf(n, api.EventLimitEnded, "")
		d.log.Info("limit ended with its subject", "subject", n.res.Subject.String(), "node", n.id)
	}
	d.dropLists()
}

// adoptToward connects the nodes of commands with the nodes that they are under; byID maps the numbers in the file to
// nodes. It lifts a node that has lost the node that it is under.
func (d *Daemon) adoptToward(byID map[uint32]*node) {
	some := false
	for n := range d.nodes.All() {
		if n.to == nil {
			continue
		}
		some = true
		d.names.Adopt(n.to.names)
		if n.scopeID == 0 {
			continue
		}
		n.to.scope = byID[n.scopeID]
		if scope := n.to.scope; scope != nil && d.nodes.Get(scope.id) == scope {
			scope.holds++
			continue
		}
		n.to.scope, n.to.leaving = &node{}, true
	}
	for _, n := range d.nodes.Sorted() {
		if n.to != nil && n.to.leaving || n.marker && n.holds == 0 && n.empty() {
			if err := d.drop(n); err != nil {
				d.log.Warn("a limit that has lost its subject is not lifted", "subject", n.res.Subject.String(), "err", err)
			}
		}
	}
	d.loadLists()
	if some {
		d.touchShared()
		d.destinations.Follow()
	}
}
