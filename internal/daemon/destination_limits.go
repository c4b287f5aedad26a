package daemon

import (
	"slices"
	"time"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/source/destinations"
	"github.com/netnice/netnice/internal/source/rulefiles"
)

// destinationHost is what limits on a part of the traffic need from the daemon. The caller of its methods holds d.mu.
type destinationHost struct{ *Daemon }

var _ destinations.NodeHost = destinationHost{}

// forDestinations returns a node as the source of destinations knows it.
func (n *node) forDestinations() destinations.Node {
	is := destinations.Node{
		Resolved: n.res, ID: n.id, RuleSet: n.book(), User: n.userUID, OnlyUser: n.IsOnlyUsers(), IsOfRule: n.to == nil,
	}
	if n.to == nil {
		return is
	}
	is.Selector, is.List, is.IsLeaving = n.to.selector, n.listKey(), n.to.leaving
	if n.to.scope != nil {
		is.Scope, is.Under = n.to.scope.id, n.to.scope.res.Kind
	}
	return is
}

// Nodes implements destinations.NodeHost.
func (h destinationHost) Nodes(yield func(destinations.Node) bool) {
	for _, n := range h.nodes.Sorted() {
		if n.res.Kind == enforce.KindDestination && !yield(n.forDestinations()) {
			return
		}
	}
}

// Trees implements destinations.NodeHost. It is called at each exec that rules match: a machine may have many trees, and
// few that rules for a part of the traffic match.
func (h destinationHost) Trees(yield func(rulefiles.Tree) bool) {
	for _, n := range h.nodes.Sorted() {
		if n.applied && n.destined() && !yield(rulefiles.Tree{Resolved: n.res, ID: n.id, User: n.userUID, Rules: n.Ruled}) {
			return
		}
	}
}

// IsDown implements destinations.NodeHost.
func (h destinationHost) IsDown() bool { return h.isDown }

// Complain implements destinations.NodeHost.
func (h destinationHost) Complain(err error) { h.complain(err) }

// SetRuled implements destinations.NodeHost.
func (h destinationHost) SetRuled(id uint32, is *rulefiles.Limit) uint32 {
	n := h.nodes.Get(id)
	next := node{res: is.Resolved, since: time.Now()}
	if n != nil {
		if n.res.UID != is.UID {
			n.res.UID = is.UID
			h.nodes.Put(n)
			h.file.Outdate()
			h.touch(n)
		}
		next = *n
	}
	next.Ruled = desired.Rules{Destined: is.Number}
	next.Ruled.Owners[is.Owner] = is.Request
	if is.Owner == enforce.OwnerUser {
		next.setUser(is.User)
	}
	if n != nil {
		h.changeRuled(n, &next)
		return id
	}
	err := h.quota(auth.Actor{UID: is.User}, true)
	if err == nil {
		n, err = h.commit(nil, &next)
	}
	if err != nil {
		h.ruleFailed(next.res, err)
		return 0
	}
	h.tellSet(nil, n, observe.ByRule)
	h.log.Info("limit set by a rule", "subject", n.res.Subject.String(), "for", n.res.Name, "node", n.id)
	return n.id
}

// LiftRuled implements destinations.NodeHost.
func (h destinationHost) LiftRuled(id uint32) {
	n := h.nodes.Get(id)
	if n == nil {
		return
	}
	before := *n
	if err := h.drop(n); err != nil {
		h.ruleFailed(n.res, err)
		return
	}
	h.tellSet(&before, nil, observe.ByRule)
	h.log.Info("a rule's limit was changed", "subject", n.res.Subject.String(), "node", n.id, "lifted", true)
}

// destined reports whether a rule for a part of the traffic matches the processes of a tree.
func (n *node) destined() bool {
	return n.res.Kind == enforce.KindTree && slices.ContainsFunc(n.Ruled.Owners[:], func(w desired.OwnerRules) bool { return len(w.To) > 0 })
}

// marks reports whether a node exists only to mark its processes: it tells the kernel side whose connections another
// node is for.
func (n *node) marks() bool {
	return (n.destined() || n.holds > 0) && len(n.limits()) == 0 && n.Holding().Weight() == limit.DefaultWeight
}
