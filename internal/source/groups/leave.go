package groups

import (
	"context"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
)

// leaving is a member that a request takes out of its group.
type leaving struct {
	pid         int
	node, group Node
	inside      bool // it is still in the group; if not, a daemon was killed while it took the member out
}

// leaveRequest takes processes out of their groups. Their other limits stay. The limits that enclose the group still
// enclose them.
type leaveRequest[T Transaction] struct {
	request.Exchange
	source *Source[T]
	req    api.SetRequest
	found  []lookedUp // by the members of the request
	list   []leaving
}

// lookedUp is a process, or the name of one that has ended. Its descendants may live on.
type lookedUp struct {
	identity.Resolved
	hasEnded bool
}

// Leave returns a request that takes processes out of their groups.
func (s *Source[T]) Leave(by auth.Actor, req api.SetRequest) request.Steps[T] {
	return &leaveRequest[T]{Exchange: request.Exchange{By: by, DryRun: req.DryRun}, source: s, req: req}
}

func (r *leaveRequest[T]) Check() error { return checkLeave(r.req) }

func (r *leaveRequest[T]) Resolve(ctx context.Context) error {
	for _, m := range r.req.Members {
		res, err := r.source.resolver.Resolve(ctx, identity.PIDSubject(m.PID))
		if err != nil && !identity.IsNotFound(err) {
			return err
		}
		r.found = append(r.found, lookedUp{res, err != nil})
	}
	return nil
}

func (r *leaveRequest[T]) Find() error {
	stats, err := r.source.kernel.Stats()
	if err != nil {
		return err
	}
	parents := make(map[uint32]uint32, len(stats))
	for _, s := range stats {
		parents[s.ID] = s.Parent
	}
	for i, m := range r.req.Members {
		var n Node
		if of := r.found[i]; of.hasEnded {
			n = r.source.host.FindName(identity.PIDSubject(m.PID))
		} else {
			n = r.source.host.Find(of.Resolved)
		}
		one, err := r.whoLeaves(m.PID, n, parents)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.list, func(m leaving) bool { return m.node.ID == n.ID }) {
			continue // named twice
		}
		r.list = append(r.list, one)
		r.Answer.Left = append(r.Answer.Left, api.Left{PID: m.PID, Group: n.Group})
	}
	return nil
}

// whoLeaves finds the group of a member, and refuses a member that the caller may not take out.
func (r *leaveRequest[T]) whoLeaves(pid int, n Node, parents map[uint32]uint32) (none leaving, err error) {
	if name := r.req.Subject.ID; n.Group == "" || name != "" && n.Group != name {
		what := "a group"
		if name != "" {
			what = "group:" + name
		}
		return none, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d is no member of %s", pid, what), Hint: "netnice ls"}
	}
	group := r.source.host.FindName(api.Subject{Kind: api.KindGroup, ID: n.Group})
	if group.ID == 0 {
		return none, fmt.Errorf("process %d is in group:%s, which is not there", pid, n.Group)
	}
	if err := r.mayLeave(pid, n, group); err != nil {
		return none, err
	}
	around := parents[n.ID]
	for at := around; at != 0 && at != group.ID; at = parents[at] {
		if parents[at] == group.ID {
			return none, &api.Error{
				Code:    api.CodeConflict,
				Message: fmt.Sprintf("process %d is in %s with %s, which is around it", pid, group.Subject, r.source.nameOf(at)),
				Hint:    "it leaves with what is around it (netnice ls), or with the whole group: netnice unset --group " + n.Group,
			}
		}
	}
	return leaving{pid: pid, node: n, group: group, inside: around == group.ID}, nil
}

// mayLeave refuses a user who would take out another's process, or a process of a group that is not only theirs.
func (r *leaveRequest[T]) mayLeave(pid int, n, group Node) error {
	if r.By.Root() {
		return nil
	}
	denied := func(why string) error {
		return auth.Denied(why, fmt.Sprintf("sudo netnice fair --leave %d", pid))
	}
	switch {
	case n.UID != r.By.UID:
		return denied(fmt.Sprintf("process %d belongs to another user", pid))
	case !group.OnlyUser:
		return denied(fmt.Sprintf("the limit of %s was set by the administrator", group.Subject))
	case group.User != r.By.UID:
		return denied(fmt.Sprintf("%s is another user's", group.Subject))
	}
	return r.source.host.MayChange(r.By, n)
}

// Authorise has nothing to add: Find refuses members whom the caller may not take out.
func (r *leaveRequest[T]) Authorise() error { return nil }

func (r *leaveRequest[T]) Plan(T) error {
	r.Answer.Changed = true
	return nil
}

func (r *leaveRequest[T]) Apply(tx T) error {
	for _, one := range r.list {
		if err := r.source.takeOut(tx, r.By, one); err != nil {
			return request.KernelError(one.node.Subject, err)
		}
	}
	return nil
}

func (r *leaveRequest[T]) Finish() {
	if r.DryRun {
		return
	}
	r.HasLifted = true
	r.source.host.EndGone() // the group, with its last member
	r.Warn(r.source.host.Unwritten(true)...)
}
