package groups

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
	"github.com/netnice/netnice/internal/request"
)

// member is a process that a request adds to a group.
type member struct {
	identity.Resolved
	weight uint32 // 0 = unchanged
}

// setRequest makes a group, changes its limit, or adds processes.
type setRequest[T Transaction] struct {
	Limit[T]
	source    *Source[T]
	by        auth.Actor
	req       api.SetRequest
	members   []member
	newOwned  int // members that count for the caller's quota from now on
	newLimits int // members without a limit so far
}

// Set returns a request that makes a group, changes its limit, or adds processes.
func (s *Source[T]) Set(by auth.Actor, req api.SetRequest) request.Steps[T] {
	uid := uint32(0)
	if !by.Root() {
		uid = by.UID
	}
	return &setRequest[T]{Limit: s.host.Limit(by, req, identityOf(req.Subject.ID, uid)), source: s, by: by, req: req}
}

func (r *setRequest[T]) Check() error {
	if r.req.Wish != (api.Wish{}) || len(r.req.Members) == 0 {
		if err := request.CheckLimit(r.by, r.req); err != nil {
			return err
		}
	}
	if err := request.CheckSpan(r.req); err != nil {
		return err
	}
	return checkSet(r.req)
}

func (r *setRequest[T]) Resolve(ctx context.Context) (err error) {
	if err = r.Limit.Resolve(ctx); err == nil {
		r.members, err = r.source.resolveMembers(ctx, r.by, r.req.Members)
	}
	return err
}

// resolveMembers looks up the processes that are to become members.
func (s *Source[T]) resolveMembers(ctx context.Context, by auth.Actor, list []api.Member) (members []member, err error) {
	for _, m := range list {
		subject := identity.PIDSubject(m.PID)
		weight := m.Weight
		if weight != 0 {
			if err := request.CheckLimit(by, api.SetRequest{Subject: subject, Wish: api.Wish{Weight: &weight}}); err != nil {
				return nil, err
			}
		}
		res, err := s.resolver.Resolve(ctx, subject)
		if err != nil {
			return nil, err
		}
		if res.Kind != enforce.KindTree {
			return nil, Bad("process %d stands for the whole machine", m.PID)
		}
		members = append(members, member{res, weight})
	}
	return members, nil
}

func (r *setRequest[T]) Find() error {
	if err := r.Limit.Find(); err != nil {
		return err
	}
	switch {
	case r.Node().ID != 0:
	case len(r.members) == 0:
		return &api.Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("there is no group %s", r.req.Subject.ID),
			Hint: "netnice fair --group " + r.req.Subject.ID + " --up RATE PID...",
		}
	case (limit.Limit{}).Merge(r.req.Wish).Empty():
		return request.Bad(fairCommand(r.req), "a new group needs a rate that its members share")
	}
	return nil
}

func (r *setRequest[T]) Authorise() error {
	if err := auth.Check(r.by, auth.Set, auth.Target{Subject: r.req.Subject, Kind: enforce.KindTree, UID: r.Node().UID, Wish: r.req.Wish}); err != nil {
		return err
	}
	if err := r.Limit.Authorise(); err != nil {
		return err
	}
	err := r.checkMembers()
	var refused *api.Error
	if errors.As(err, &refused) && refused.Code == api.CodeDenied {
		return auth.Denied(refused.Message, "sudo "+fairCommand(r.req))
	}
	return err
}

// checkMembers refuses processes that the caller may not limit, and members of other groups. It also refuses processes
// that are not inside the same trees as the other members. It counts those that need quota.
func (r *setRequest[T]) checkMembers() error {
	host, group := r.source.host, r.Node()
	known := group.ID != 0
	r.newOwned, r.newLimits = 0, 0
	for i, m := range r.members {
		own := host.Find(m.Resolved)
		if err := auth.Check(r.by, auth.Set, auth.Target{Subject: m.Subject, Kind: m.Kind, UID: m.UID}); err != nil {
			return err
		}
		isNamed := slices.ContainsFunc(r.members[:i], func(before member) bool { return before.Key == m.Key })
		if own.ID != 0 {
			if err := host.MayChange(r.by, own); err != nil {
				return err
			}
		} else if !isNamed {
			r.newLimits++
		}
		if !isNamed && !own.Commanded[r.by.Owner()] {
			r.newOwned++
		}
		outer, err := r.source.outerOf(m, own, group)
		if err != nil {
			return err
		}
		if !known {
			group.Outer, known = outer, true
			r.SetOuter(outer)
		}
		if outer != group.Outer {
			return Bad("process %s is inside the limit of %s, and others of the group are not", m.Subject.ID, r.source.nameOf(max(outer, group.Outer)))
		}
	}
	return nil
}

// outerOf returns the tree that a member is in, or is in with its group. It refuses a member of another group.
func (s *Source[T]) outerOf(m member, own, group Node) (outer uint32, err error) {
	for _, id := range s.kernel.Trees(int(m.Key)) {
		around := s.host.Get(id)
		switch {
		case around.ID == 0, around.ID == own.ID:
			continue
		case around.ID == group.ID:
			return group.Outer, nil
		case around.Subject.Kind == api.KindGroup:
			return 0, request.Bad("take it out first: netnice fair --leave "+m.Subject.ID, "process %s is in %s already", m.Subject.ID, around.Subject)
		}
		if outer == 0 {
			outer = around.ID
		}
	}
	return outer, nil
}

func (r *setRequest[T]) Plan(tx T) error {
	if err := r.Limit.Plan(tx); err != nil || len(r.members) == 0 {
		return err
	}
	e := r.Common()
	e.Answer.Changed, e.IsAnswered = true, false
	if r.IsLifted() {
		return Bad("a group without a limit takes nobody in")
	}
	return nil
}

func (r *setRequest[T]) Admit() error {
	if err := r.Limit.Admit(); err != nil {
		return err
	}
	if r.IsFirst() {
		r.newOwned++
	}
	if r.Node().ID == 0 {
		r.newLimits++
	}
	return r.source.host.Quota(r.by, r.newOwned, r.newLimits)
}

func (r *setRequest[T]) Apply(tx T) error {
	if err := r.Limit.Apply(tx); err != nil {
		return err
	}
	for _, m := range r.members {
		if err := r.source.takeIn(tx, r.by, r.Node(), m); err != nil {
			return request.KernelError(m.Subject, err)
		}
	}
	return nil
}
