package daemon

import (
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/source/destinations"
	"github.com/netnice/netnice/internal/source/rulefiles"
)

// destinationHost is what limits on a part of the traffic need from the daemon. Requests hold d.mu from the time at which
// they find their nodes.
type destinationHost struct{ *Daemon }

var _ destinations.Host[*transaction] = destinationHost{}

// forDestinations returns a command's node for a part of the traffic as the source of destinations knows it.
func (n *node) forDestinations() destinations.Node {
	list := n.listKey()
	is := destinations.Node{
		Resolved: n.res, ID: n.id, RuleSet: list.RuleSet, User: n.userUID, UserName: n.userName, OnlyUser: n.IsOnlyUsers(),
		Selector: n.to.selector, List: list, Names: n.to.names, IsLeaving: n.to.leaving, IsObserved: n.to.met,
	}
	if n.to.scope != nil {
		is.Scope, is.Under = n.to.scope.id, n.to.scope.res.Kind
	}
	return is
}

// newPart returns a node for a part of the traffic, without a limit so far.
func newPart(is destinations.Node) node {
	n := node{res: is.Resolved, since: time.Now(), to: &part{selector: is.Selector}}
	if is.OnlyUser {
		n.setUser(is.User)
	}
	return n
}

// Nodes implements destinations.Host.
func (h destinationHost) Nodes(yield func(destinations.Node) bool) {
	for _, n := range h.nodes.Sorted() {
		if n.to != nil && !yield(n.forDestinations()) {
			return
		}
	}
}

// Ruled implements destinations.Host.
func (h destinationHost) Ruled(yield func(key uint64, id uint32) bool) {
	for _, n := range h.nodes.Sorted() {
		if n.res.Kind == enforce.KindDestination && n.to == nil && !yield(n.res.Key, n.id) {
			return
		}
	}
}

// Named implements destinations.Host.
func (h destinationHost) Named(s api.Subject) (list []destinations.Node) {
	for _, n := range h.nodes.WithSubject(s) {
		if n.to != nil {
			list = append(list, n.forDestinations())
		}
	}
	return list
}

// Trees implements destinations.Host. It is called at each exec that rules match: a machine may have many trees, and few
// that rules for a part of the traffic match.
func (h destinationHost) Trees(yield func(rulefiles.Tree) bool) {
	for _, n := range h.nodes.Sorted() {
		if n.applied && n.destined() && !yield(rulefiles.Tree{Resolved: n.res, ID: n.id, User: n.userUID, Rules: n.Ruled}) {
			return
		}
	}
}

// IsDown implements destinations.Host.
func (h destinationHost) IsDown() bool { return h.isDown }

// Complain implements destinations.Host.
func (h destinationHost) Complain(err error) { h.complain(err) }

// SharedChanged implements destinations.Host.
func (h destinationHost) SharedChanged() { h.touchShared() }

// WakePeers implements destinations.Host.
func (h destinationHost) WakePeers() { h.peers.Wake() }

// Unwritten implements destinations.Host.
func (h destinationHost) Unwritten(lifts bool) []string {
	return h.unwrittenWarnings(h.file.Path(), lifts)
}

// MaySee implements destinations.Host.
func (h destinationHost) MaySee(by auth.Actor, id uint32) bool {
	return h.nodes.Get(id).record().DestinationIsFor(by)
}

// Lifted implements destinations.Host.
func (h destinationHost) Lifted(by auth.Actor, id uint32) (publish func()) {
	before := *h.nodes.Get(id)
	return func() {
		h.tellSet(&before, nil, identity.OwnerName(by.Owner(), by.UID))
		h.log.Info("limit lifted", "subject", before.res.Subject.String(), "by", by.UID, "node", id)
	}
}

// SetRuled implements destinations.Host.
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

// LiftRuled implements destinations.Host.
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

// Orphans implements destinations.Host.
func (h destinationHost) Orphans() (list []uint32) {
	for n := range h.nodes.All() {
		if n.to != nil && n.to.scope != nil && h.nodes.Get(n.to.scope.id) != n.to.scope {
			list = append(list, n.id)
		}
	}
	return list
}

// MarkLeaving implements destinations.Host.
func (h destinationHost) MarkLeaving(id uint32) { h.nodes.Get(id).to.leaving = true }

// End implements destinations.Host.
func (h destinationHost) End(id uint32) {
	n := h.nodes.Get(id)
	if err := h.drop(n); err != nil {
		h.once(n, err)
		return
	}
	h.tellOf(n, api.EventLimitEnded, "")
	h.log.Info("limit ended with its subject", "subject", n.res.Subject.String(), "node", n.id)
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

// adoptDestinations connects the nodes of commands with the nodes that they are under; byID maps the numbers in the file
// to nodes. It lifts a node that has lost the node that it is under.
func (d *Daemon) adoptDestinations(byID map[uint32]*node) {
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
	for n := range d.nodes.All() {
		if n.to != nil && n.to.selector.List != "" {
			if err := d.lists.Load(n.listKey()); err != nil {
				d.once(n, err)
			}
		}
	}
	if some {
		d.touchShared()
		d.destinations.Follow()
	}
}

// NoteAssigned implements destinations.Transaction.
func (tx *transaction) NoteAssigned() { tx.assigned = true }

// Hold implements destinations.Transaction.
func (tx *transaction) Hold(under identity.Resolved) (uint32, error) {
	scope := tx.d.nodes.Find(under)
	if scope == nil {
		made, err := tx.put(nil, &node{res: under, since: time.Now(), holds: 1})
		if err != nil {
			return 0, err
		}
		return made.id, nil
	}
	tx.changing(scope)
	scope.holds++
	return scope.id, nil
}

// release is the opposite of Hold: it lifts a node that existed only for limits on a part of the traffic.
func (tx *transaction) release(scope *node) error {
	if scope == nil {
		return nil
	}
	tx.changing(scope)
	scope.holds--
	if tx.d.nodes.Get(scope.id) == scope && scope.empty() {
		return tx.lift(scope)
	}
	return nil
}

// MarkLeaving implements destinations.Transaction.
func (tx *transaction) MarkLeaving(id uint32) {
	n := tx.d.nodes.Get(id)
	tx.changing(n)
	to := *n.to
	to.leaving = true
	n.to = &to
}

// LiftLimit implements destinations.Transaction.
func (tx *transaction) LiftLimit(id uint32) error {
	n := tx.d.nodes.Get(id)
	if err := tx.lift(n); err != nil {
		return err
	}
	return tx.release(n.to.scope)
}

// destinationLimit is the request for a limit on a part of the traffic.
type destinationLimit struct {
	limitRequest
	under identity.Resolved
	files []string // those that the request has changed
}

// Limit implements destinations.Host.
func (h destinationHost) Limit(by auth.Actor, req api.SetRequest) destinations.Limit[*transaction] {
	return &destinationLimit{limitRequest: h.newLimitRequest(by, req), files: []string{h.file.Path()}}
}

// Begin implements destinations.Limit.
func (r *destinationLimit) Begin(under identity.Resolved, n destinations.Node) {
	r.under, r.subject, r.example = under, n.Subject, destination.Example
	r.begin(r.d.nodes.Get(n.ID), newPart(n))
}

// Authorise implements destinations.Limit.
func (r *destinationLimit) Authorise() error { return r.d.checkPersist(r.req, r.under, nil) }

// Apply implements destinations.Limit.
func (r *destinationLimit) Apply(tx *transaction) error {
	n, err := tx.put(r.node, &r.next)
	if err == nil {
		r.done(n)
	}
	return err
}

// Wrote implements destinations.Limit.
func (r *destinationLimit) Wrote(path string) { r.files = append(r.files, path) }

// Finish implements destinations.Limit.
func (r *destinationLimit) Finish() {
	if r.Answer.Changed && !r.DryRun {
		r.d.peers.Wake()
		r.publish(r.files)
	}
	r.show(&r.next)
}

// Node implements destinations.Limit.
func (r *destinationLimit) Node() destinations.Node { return r.next.forDestinations() }

// SetNode implements destinations.Limit.
func (r *destinationLimit) SetNode(n destinations.Node) {
	to := *r.next.to
	to.names, to.met = n.Names, n.IsObserved
	if to.scope == nil {
		to.scope = r.d.nodes.Get(n.Scope)
	}
	r.next.to = &to
}

// IsLifted implements destinations.Limit.
func (r *destinationLimit) IsLifted() bool { return r.next.empty() }
