package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

// leavingMember is a member that a request takes out of its group.
type leavingMember struct {
	pid         int
	node, group *node
	inside      bool // it is still in the group; if not, a daemon was killed while it took the member out
}

// leaveRequest takes processes out of their groups. Their other limits stay. The limits that enclose the group still
// enclose them.
type leaveRequest struct {
	exchange
	req   api.SetRequest
	found []resolution // by the members of the request
	list  []leavingMember
}

func (r *leaveRequest) Check() error { return request.CheckLeave(r.req) }

func (r *leaveRequest) Resolve(ctx context.Context) error {
	for _, m := range r.req.Members {
		var of resolution
		if err := of.resolve(ctx, r.d, identity.PIDSubject(m.PID)); err != nil {
			return err
		}
		r.found = append(r.found, of)
	}
	return nil
}

func (r *leaveRequest) Find() error {
	stats, err := r.d.kernel.Stats()
	if err != nil {
		return err
	}
	parents := make(map[uint32]uint32, len(stats))
	for _, s := range stats {
		parents[s.ID] = s.Parent
	}
	for i, m := range r.req.Members {
		one, err := r.d.whoLeaves(r.By, m.PID, r.found[i].find(r.d, identity.PIDSubject(m.PID)), r.req.Subject.ID, parents)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.list, func(m leavingMember) bool { return m.node == one.node }) {
			continue // named twice
		}
		r.list = append(r.list, one)
		r.Answer.Left = append(r.Answer.Left, api.Left{PID: m.PID, Group: one.group.res.Subject.ID})
	}
	return nil
}

// Authorise has nothing to add: Find refuses members whom the caller may not take out.
func (r *leaveRequest) Authorise() error { return nil }

func (r *leaveRequest) Plan(*transaction) error {
	r.Answer.Changed = true
	return nil
}

func (r *leaveRequest) Apply(tx *transaction) error {
	for _, one := range r.list {
		if err := tx.takeOut(r.By, one); err != nil {
			return request.KernelError(one.node.res.Subject, err)
		}
	}
	return nil
}

func (r *leaveRequest) Finish() {
	if r.DryRun {
		return
	}
	r.HasLifted = true
	r.d.endGone() // the group, with its last member
	r.Warn(r.d.unwrittenWarnings(r.d.file.Path(), true)...)
}

// whoLeaves finds a member and its group, and refuses a member that the caller may not take out. The caller holds d.mu.
func (d *Daemon) whoLeaves(by auth.Actor, pid int, n *node, name string, parents map[uint32]uint32) (leavingMember, error) {
	none := leavingMember{}
	if n == nil || n.group == "" || name != "" && n.group != name {
		what := "a group"
		if name != "" {
			what = "group:" + name
		}
		return none, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d is no member of %s", pid, what), Hint: "netnice ls"}
	}
	group := d.nodes.FindName(api.Subject{Kind: api.KindGroup, ID: n.group})
	if group == nil {
		return none, fmt.Errorf("process %d is in group:%s, which is not there", pid, n.group)
	}
	denied := func(why string) error {
		return auth.Denied(why, fmt.Sprintf("sudo netnice fair --leave %d", pid))
	}
	if !by.Root() {
		switch {
		case n.res.UID != by.UID:
			return none, denied(fmt.Sprintf("process %d belongs to another user", pid))
		case !group.own():
			return none, denied(fmt.Sprintf("the limit of %s was set by the administrator", group.res.Subject))
		case group.userUID != by.UID:
			return none, denied(fmt.Sprintf("%s is another user's", group.res.Subject))
		}
		if err := d.others(by, n, n.res.Subject); err != nil {
			return none, err
		}
	}
	around := parents[n.id]
	for at := around; at != 0 && at != group.id; at = parents[at] {
		if parents[at] == group.id {
			return none, &api.Error{
				Code:    api.CodeConflict,
				Message: fmt.Sprintf("process %d is in %s with %s, which is around it", pid, group.res.Subject, d.nameOf(at)),
				Hint:    "it leaves with what is around it (netnice ls), or with the whole group: netnice unset --group " + n.group,
			}
		}
	}
	return leavingMember{pid: pid, node: n, group: group, inside: around == group.id}, nil
}

// takeOut takes a process out of its group.
func (tx *transaction) takeOut(by auth.Actor, m leavingMember) error {
	d, before := tx.d, *m.node
	if m.inside {
		if err := d.kernel.Leave(m.node.id); err != nil {
			return err
		}
		tx.OnFailure(func() error {
			return request.StepBack(fmt.Sprintf("netnice fair --group %s %d", before.group, m.pid), fmt.Sprintf("process %d is out of %s", m.pid, m.group.res.Subject),
				d.kernel.Join(m.group.id, m.pid))
		})
	}
	next := before.alone()
	if _, err := tx.alter(m.node, &next); err != nil {
		return err
	}
	tx.Then(func() {
		d.log.Info("taken out of a group", "subject", before.res.Subject.String(), "group", before.group, "by", by.UID)
	})
	return nil
}

// leaveAgain takes a process out of a group that it has just joined. Only a node can leave: a process without one leaves
// inside a node that exists no longer than that. The caller holds d.mu.
func (d *Daemon) leaveAgain(res identity.Resolved, group *node) error {
	pid := int(res.Key)
	if !d.isInside(pid, group) {
		return nil // the kernel has refused it
	}
	if own := d.nodes.Find(res); own != nil {
		return d.kernel.Leave(own.id)
	}
	way := node{id: d.freeID(), res: groupOf("out of "+group.res.Subject.ID, group.res.UID), ruled: desired.Rules{Outer: group.id}}
	errs := []error{enforce.LeaveBy(d.kernel, way.spec(), pid)}
	for _, n := range d.nodes.Sorted() { // members among its descendants have left with it
		if member := int(n.res.Key); n.group == group.res.Subject.ID && !d.isInside(member, group) {
			errs = append(errs, d.kernel.Join(group.id, member))
		}
	}
	return errors.Join(errs...)
}

// alone returns the node without its group. The default weight is taken to be the group's; other weights stay.
func (n *node) alone() node {
	next := *n
	next.group = ""
	for owner := range enforce.Owners {
		if next.requested[owner].Weight == limit.DefaultWeight {
			next.requested[owner].Weight = 0
		}
	}
	return next
}
