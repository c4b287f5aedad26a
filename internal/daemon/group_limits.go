package daemon

import (
	"context"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/source/groups"
)

// groupHost is what groups need from the daemon. Requests hold d.mu from the time at which they find their nodes.
type groupHost struct{ *Daemon }

var _ groups.Host[*transaction] = groupHost{}

// forGroups returns a node as groups know it; n may be nil.
func (n *node) forGroups() groups.Node {
	if n == nil {
		return groups.Node{}
	}
	return groups.Node{
		Resolved: n.res, ID: n.id, Group: n.group, Outer: n.Ruled.Outer, Requested: n.Requested, User: n.userUID,
		Commanded: [enforce.Owners]bool{n.Asks(enforce.OwnerAdmin), n.Asks(enforce.OwnerUser)}, OnlyUser: n.IsOnlyUsers(),
	}
}

// Find implements groups.Host.
func (h groupHost) Find(of identity.Resolved) groups.Node { return h.nodes.Find(of).forGroups() }

// FindName implements groups.Host.
func (h groupHost) FindName(s api.Subject) groups.Node { return h.nodes.FindName(s).forGroups() }

// Get implements groups.Host.
func (h groupHost) Get(id uint32) groups.Node { return h.nodes.Get(id).forGroups() }

// Members implements groups.Host.
func (h groupHost) Members(group string) (list []groups.Node) {
	for _, n := range h.nodes.Sorted() {
		if n.group == group {
			list = append(list, n.forGroups())
		}
	}
	return list
}

// MayChange implements groups.Host.
func (h groupHost) MayChange(by auth.Actor, n groups.Node) error {
	return h.others(by, h.nodes.Get(n.ID), n.Subject)
}

// Quota implements groups.Host.
func (h groupHost) Quota(by auth.Actor, limits, newNodes int) error {
	return h.quotaOf(by, limits, newNodes)
}

// FreeID implements groups.Host.
func (h groupHost) FreeID() uint32 { return h.freeID() }

// EndGone implements groups.Host.
func (h groupHost) EndGone() { h.endGone() }

// Unwritten implements groups.Host.
func (h groupHost) Unwritten(lifts bool) []string { return h.unwrittenWarnings(h.file.Path(), lifts) }

// SetMember implements groups.Transaction.
func (tx *transaction) SetMember(is groups.Node) error {
	old := tx.d.nodes.Get(is.ID)
	next := node{res: is.Resolved, since: time.Now()}
	if old != nil {
		next = *old
	}
	next.group, next.Requested = is.Group, is.Requested
	if is.User != next.userUID {
		next.setUser(is.User)
	}
	_, err := tx.alter(old, &next)
	return err
}

// groupLimit is the request for the limit of a group.
type groupLimit struct {
	limitRequest
	fresh     identity.Resolved
	isChanged bool // not only the members are
}

// Limit implements groups.Host.
func (h groupHost) Limit(by auth.Actor, req api.SetRequest, fresh identity.Resolved) groups.Limit[*transaction] {
	return &groupLimit{limitRequest: h.newLimitRequest(by, req), fresh: fresh}
}

func (r *groupLimit) Resolve(context.Context) error {
	r.d.learnLine(r.req.Wish)
	return nil
}

func (r *groupLimit) Find() error {
	r.begin(r.d.nodes.FindName(r.req.Subject), node{res: r.fresh, since: time.Now()})
	return nil
}

func (r *groupLimit) Authorise() error {
	if r.req.Wish == (api.Wish{}) {
		return nil
	}
	return r.d.others(r.By, &r.next, r.req.Subject)
}

func (r *groupLimit) Plan(tx *transaction) error {
	if r.req.Wish == (api.Wish{}) {
		return nil
	}
	err := r.limitRequest.Plan(tx)
	r.isChanged = r.Answer.Changed
	return err
}

// Admit also admits a guarantee that is promised to nobody any more, because the members have ended: new ones bring it
// back.
func (r *groupLimit) Admit() error {
	if err := r.limitRequest.Admit(); err != nil {
		return err
	}
	if r.node == nil || len(r.req.Members) == 0 || !r.d.endedTrees()[r.node.id] {
		return nil
	}
	for _, way := range []enforce.Direction{enforce.Up, enforce.Down} {
		if r.next.Guarantee(way) == 0 {
			continue
		}
		if err := r.d.admit(&r.next, way); err != nil {
			return err
		}
	}
	return nil
}

func (r *groupLimit) Apply(tx *transaction) error {
	if !r.isChanged {
		return nil
	}
	return request.KernelError(r.req.Subject, r.apply(tx))
}

func (r *groupLimit) Finish() {
	switch state := r.d.file.Path(); {
	case r.DryRun || !r.Answer.Changed:
	case r.isChanged:
		r.publish([]string{state}, r.logged()...)
	default:
		r.Warn(r.d.unwrittenWarnings(state, false)...)
	}
	if now := r.show(&r.next); r.isChanged && r.Answer.Node != nil {
		r.Warn(request.PromisedWarnings(now, r.had, r.want)...)
	}
}

// Node implements groups.Limit.
func (r *groupLimit) Node() groups.Node { return r.next.forGroups() }

// SetOuter implements groups.Limit.
func (r *groupLimit) SetOuter(id uint32) { r.next.Ruled.Outer = id }

// IsFirst implements groups.Limit.
func (r *groupLimit) IsFirst() bool { return r.isFirst }

// IsLifted implements groups.Limit.
func (r *groupLimit) IsLifted() bool { return r.next.empty() }
