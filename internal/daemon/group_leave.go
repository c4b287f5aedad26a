package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// leavingMember is a member that a request takes out of its group.
type leavingMember struct {
	pid         int
	node, group *node
	inside      bool // it is still in the group; if not, a daemon was killed while it took the member out
}

// leaveGroup takes processes out of their groups. Their other limits stay. The limits that enclose the group still
// enclose them.
func (d *Daemon) leaveGroup(ctx context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error) {
	answer := api.SetResponse{Version: api.Version}
	switch {
	case req.Subject.Kind != api.KindGroup:
		return answer, badGroup("only a group can be left")
	case req.Wish != (api.Wish{}) || req.Scope:
		return answer, badGroup("leaving a group is one command, and setting a limit another")
	case len(req.Members) == 0:
		return answer, badGroup("no process given that is to leave")
	}
	type process struct {
		res identity.Resolved
		err error
	}
	found := make([]process, len(req.Members))
	for i, m := range req.Members {
		if m.Weight != 0 {
			return answer, badGroup("process %d: who leaves has no weight in the group", m.PID)
		}
		p := &found[i]
		p.res, p.err = d.resolver.Resolve(ctx, identity.PIDSubject(m.PID))
		if p.err != nil && !identity.IsNotFound(p.err) {
			return answer, p.err
		}
	}
	defer func() { d.drain(answer.Changed) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return answer, leaving()
	}
	stats, err := d.kernel.Stats()
	if err != nil {
		return answer, err
	}
	parents := make(map[uint32]uint32, len(stats))
	for _, s := range stats {
		parents[s.ID] = s.Parent
	}
	var list []leavingMember
	for i, m := range req.Members {
		one, err := d.whoLeaves(by, m.PID, d.find(found[i].res, identity.PIDSubject(m.PID), found[i].err), req.Subject.ID, parents)
		if err != nil {
			return answer, err
		}
		if slices.ContainsFunc(list, func(m leavingMember) bool { return m.node == one.node }) {
			continue // named twice
		}
		list = append(list, one)
		answer.Left = append(answer.Left, api.Left{PID: m.PID, Group: one.group.res.Subject.ID})
	}
	if req.DryRun {
		answer.Changed = true
		return answer, nil
	}
	for _, one := range list {
		if err := d.endMembership(by, one); err != nil {
			return api.SetResponse{}, kernelError(one.node.res.Subject, err)
		}
		answer.Changed = true
	}
	d.endGone() // the group, with its last member
	answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.file.Path(), true)...)
	return answer, nil
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

// endMembership takes a process out of its group. The caller holds d.mu.
func (d *Daemon) endMembership(by auth.Actor, m leavingMember) error {
	defer d.observe.Outdate()
	if m.inside {
		if err := d.kernel.Leave(m.node.id); err != nil {
			return err
		}
	}
	before := *m.node
	next := before.alone()
	var err error
	if next.empty() {
		err = d.drop(m.node)
	} else {
		_, err = d.commit(m.node, &next)
	}
	if err != nil {
		if m.inside {
			err = errors.Join(err, d.kernel.Join(m.group.id, m.pid))
		}
		return err
	}
	d.log.Info("taken out of a group", "subject", before.res.Subject.String(), "group", before.group, "by", by.UID)
	return nil
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
