package daemon

import (
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// wanted returns the node as the state file has it. The record shares its parts with the node: it is written before the
// lock is released.
func (n *node) wanted() desired.Record {
	s := desired.Record{
		ID: n.id, Subject: n.res.Subject, Kind: n.res.Kind, Key: n.res.Key, StartNS: n.res.StartBoottimeNS,
		UID: n.res.UID, Name: n.res.Name, Dir: n.res.Dir,
		Admin: n.Requested[enforce.OwnerAdmin], User: n.Requested[enforce.OwnerUser], UserUID: n.userUID,
		Since: n.since, Scope: n.scope, Group: n.group,
	}
	if !n.Ruled.Empty() || n.Ruled.Outer != 0 {
		s.Rules = &n.Ruled
	}
	if n.to != nil {
		s.To = &desired.Destination{Names: n.to.names, Each: n.to.each, Met: n.to.met}
		if n.to.scope != nil {
			s.To.Scope = n.to.scope.id
		}
	}
	s.Marker = n.holds > 0
	if n.Timed != [enforce.Owners]desired.Timed{} {
		s.Timed = &n.Timed
	}
	return s
}

// nodeOf returns the node of a record. The kernel may have it or not.
func nodeOf(s desired.Record) *node {
	n := &node{
		id: s.ID,
		res: identity.Resolved{
			Subject: s.Subject, Kind: s.Kind, Key: s.Key, StartBoottimeNS: s.StartNS,
			UID: s.UID, Name: s.Name, Dir: s.Dir,
		},
		Wanted: plan.Wanted{Requested: limit.Owners{enforce.OwnerAdmin: s.Admin, enforce.OwnerUser: s.User}},
		since:  s.Since,
		scope:  s.Scope,
		group:  s.Group,
		marker: s.Marker,
	}
	if s.Timed != nil {
		n.Timed = *s.Timed
	}
	if s.To != nil {
		n.to, n.scopeID = &part{names: s.To.Names, each: s.To.Each, met: s.To.Met}, s.To.Scope
		n.to.selector, _, _ = destination.Parse(s.Subject.ID) // check has parsed it before
	}
	if s.Rules != nil {
		n.Ruled = *s.Rules
		for owner := range n.Ruled.Owners {
			if o := &n.Ruled.Owners[owner]; o.Facts == nil && len(o.Rules) > 0 {
				o.Facts = n.Ruled.Facts
			}
		}
		n.Ruled.Facts = nil
	}
	if n.Asks(enforce.OwnerUser) || !n.Ruled.Owners[enforce.OwnerUser].Empty() {
		n.setUser(s.UserUID)
	}
	return n
}

// change returns the node's line in the journal.
func (n *node) change() desired.Change {
	r := n.wanted()
	return desired.Change{Node: &r}
}

// content returns what the state file has to hold. The caller holds d.mu.
func (d *Daemon) content() desired.Content {
	return desired.Content{NextID: d.nextID, Count: d.nodes.Len(), Records: func(yield func(desired.Record) bool) {
		for _, n := range d.nodes.Sorted() {
			if !yield(n.wanted()) {
				return
			}
		}
	}}
}

// writeChange writes a change that is in force in the kernel already. unwrittenWarnings reports a failure to write it.
func (d *Daemon) writeChange(lasting bool, changes ...desired.Change) {
	_ = d.file.Append(lasting, changes...)
}

// lasting reports whether the limit outlives this boot: a process does not.
func (n *node) lasting() bool {
	if n.to != nil {
		return n.to.scope == nil || n.to.scope.lasting()
	}
	return n.res.Kind != enforce.KindTree && n.res.Kind != enforce.KindDestination
}

// keepNode adds a node. The caller holds d.mu.
func (d *Daemon) keepNode(n *node) {
	d.nodes.Put(n)
	d.touch(n)
}

// forgetNode removes a node. The caller holds d.mu.
func (d *Daemon) forgetNode(id uint32) {
	d.nodes.Remove(id)
	d.touchID(id)
}
