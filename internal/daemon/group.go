package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

// A group is one limit for several named processes. Each member, with its descendants, is a node inside the group's
// node. Members therefore share by weight, whatever number of processes and connections each has. The group ends with
// its last member.

// groupOf returns the identity of a group's node. The node has no process. A start time that is derived from the name
// takes the place of the process's, and distinguishes the group. Its owner is the user, or root.
func groupOf(name string, uid uint32) identity.Resolved {
	h := fnv.New32a()
	fmt.Fprintf(h, "group %s", name)
	return identity.Resolved{
		Subject: api.Subject{Kind: api.KindGroup, ID: name}, Kind: enforce.KindTree, UID: uid, Name: name,
		StartBoottimeNS: (uint64(h.Sum32()) + 1) * identity.TickNS,
	}
}

// member is a process that a request adds to a group.
type member struct {
	res    identity.Resolved
	weight uint32 // 0 = unchanged
}

// groupRequest makes a group, changes its limit, or adds processes.
type groupRequest struct {
	limitRequest
	members   []member
	hasLimit  bool // its limit is changed too
	newOwned  int  // members that count for the caller's quota from now on
	newLimits int  // members without a limit so far
}

func (r *groupRequest) Check() error {
	if r.req.Wish != (api.Wish{}) || len(r.req.Members) == 0 {
		if err := request.CheckLimit(r.By, r.req); err != nil {
			return err
		}
	}
	if err := request.CheckSpan(r.req); err != nil {
		return err
	}
	return request.CheckGroup(r.req)
}

func (r *groupRequest) Resolve(ctx context.Context) (err error) {
	r.d.learnLine(r.req.Wish)
	r.members, err = r.d.resolveMembers(ctx, r.By, r.req.Members)
	return err
}

func (r *groupRequest) Find() error {
	n := r.d.nodes.FindName(r.req.Subject)
	fresh := node{res: groupOf(r.req.Subject.ID, 0), since: time.Now()}
	if !r.By.Root() {
		fresh.res.UID = r.By.UID
	}
	r.begin(n, fresh)
	switch {
	case n != nil:
	case len(r.members) == 0:
		return &api.Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("there is no group %s", r.req.Subject.ID),
			Hint: "netnice fair --group " + r.req.Subject.ID + " --up RATE PID...",
		}
	case (limit.Limit{}).Merge(r.req.Wish).Empty():
		return request.Bad(request.FairCommand(r.req), "a new group needs a rate that its members share")
	}
	return nil
}

func (r *groupRequest) Authorise() error {
	if err := auth.Check(r.By, auth.Set, auth.Target{Subject: r.req.Subject, Kind: enforce.KindTree, UID: r.next.res.UID, Wish: r.req.Wish}); err != nil {
		return err
	}
	if r.req.Wish != (api.Wish{}) {
		if err := r.d.others(r.By, &r.next, r.req.Subject); err != nil {
			return err
		}
	}
	err := r.checkMembers()
	var refused *api.Error
	if errors.As(err, &refused) && refused.Code == api.CodeDenied {
		return auth.Denied(refused.Message, "sudo "+request.FairCommand(r.req))
	}
	return err
}

func (r *groupRequest) Plan(tx *transaction) error {
	if r.hasLimit = r.req.Wish != (api.Wish{}); r.hasLimit {
		if err := r.limitRequest.Plan(tx); err != nil {
			return err
		}
		r.hasLimit = r.Answer.Changed
	}
	if len(r.members) == 0 {
		return nil
	}
	r.Answer.Changed, r.IsAnswered = true, false
	if r.next.empty() {
		return request.BadGroup("a group without a limit takes nobody in")
	}
	return nil
}

func (r *groupRequest) Admit() error {
	if err := r.limitRequest.Admit(); err != nil {
		return err
	}
	if r.isFirst {
		r.newOwned++
	}
	if r.node == nil {
		r.newLimits++
	}
	return r.d.quotaOf(r.By, r.newOwned, r.newLimits)
}

func (r *groupRequest) Apply(tx *transaction) error {
	if r.hasLimit {
		if err := r.apply(tx); err != nil {
			return request.KernelError(r.req.Subject, err)
		}
	}
	for _, m := range r.members {
		if err := tx.takeIn(r.By, r.node, m); err != nil {
			return request.KernelError(m.res.Subject, err)
		}
	}
	return nil
}

func (r *groupRequest) Finish() {
	state := []string{r.d.file.Path()}
	switch {
	case r.DryRun:
	case r.hasLimit:
		r.publish(state, r.logged()...)
	case len(r.members) > 0:
		r.Warn(r.d.unwrittenWarnings(state[0], false)...)
	}
	if now := r.show(&r.next); r.hasLimit && r.Answer.Node != nil {
		r.Warn(request.PromisedWarnings(now, r.had, r.want)...)
	}
}

// resolveMembers looks up the processes that are to become members.
func (d *Daemon) resolveMembers(ctx context.Context, by auth.Actor, list []api.Member) (members []member, err error) {
	for _, m := range list {
		subject := identity.PIDSubject(m.PID)
		weight := m.Weight
		if weight != 0 {
			if err := request.CheckLimit(by, api.SetRequest{Subject: subject, Wish: api.Wish{Weight: &weight}}); err != nil {
				return nil, err
			}
		}
		res, err := d.resolver.Resolve(ctx, subject)
		if err != nil {
			return nil, err
		}
		if res.Kind != enforce.KindTree {
			return nil, request.BadGroup("process %d stands for the whole machine", m.PID)
		}
		members = append(members, member{res: res, weight: weight})
	}
	return members, nil
}

// checkMembers refuses processes that the caller may not limit, and members of other groups. It also refuses processes
// that are not inside the same trees as the other members. It counts those that need quota. The caller holds d.mu.
func (r *groupRequest) checkMembers() error {
	d, by, group := r.d, r.By, &r.next
	known := group.id != 0
	r.newOwned, r.newLimits = 0, 0
	for i, m := range r.members {
		own := d.nodes.Find(m.res)
		if err := auth.Check(by, auth.Set, target(own, m.res, m.res.Subject, api.Wish{})); err != nil {
			return err
		}
		isNamed := slices.ContainsFunc(r.members[:i], func(before member) bool { return before.res.Key == m.res.Key })
		if own != nil {
			if err := d.others(by, own, m.res.Subject); err != nil {
				return err
			}
		} else if !isNamed {
			r.newLimits++
		}
		if !isNamed && (own == nil || !own.asks(by.Owner())) {
			r.newOwned++
		}
		outer, err := d.outerOf(m, own, group)
		if err != nil {
			return err
		}
		if !known {
			group.ruled.Outer, known = outer, true
		}
		if outer != group.ruled.Outer {
			return request.BadGroup("process %s is inside the limit of %s, and others of the group are not", m.res.Subject.ID, d.nameOf(max(outer, group.ruled.Outer)))
		}
	}
	return nil
}

// outerOf returns the tree that a member is in, or is in with its group. It refuses a member of another group. The
// caller holds d.mu.
func (d *Daemon) outerOf(m member, own, group *node) (outer uint32, err error) {
	for _, around := range d.treesAround(m.res, own) {
		if around.id == group.id {
			return group.ruled.Outer, nil
		}
		if around.res.Subject.Kind == api.KindGroup {
			return 0, request.Bad("take it out first: netnice fair --leave "+m.res.Subject.ID, "process %s is in %s already", m.res.Subject.ID, around.res.Subject)
		}
		if outer == 0 {
			outer = around.id
		}
	}
	return outer, nil
}

func (d *Daemon) nameOf(id uint32) string {
	if n := d.nodes.Get(id); n != nil {
		return n.res.Subject.String()
	}
	return "another process"
}

// isInside reports whether a process is in the tree of a group.
func (d *Daemon) isInside(pid int, group *node) bool {
	return slices.Contains(d.kernel.Trees(pid), group.id)
}

// takeIn makes a process, with its descendants, a member.
func (tx *transaction) takeIn(by auth.Actor, group *node, m member) error {
	d := tx.d
	own := d.nodes.Find(m.res)
	if pid := int(m.res.Key); !d.isInside(pid, group) {
		tx.OnFailure(func() error {
			return request.StepBack(fmt.Sprintf("take it out: netnice fair --group %s %d; netnice fair --leave %d", group.res.Subject.ID, pid, pid),
				fmt.Sprintf("process %d stays in %s", pid, group.res.Subject), d.leaveAgain(m.res, group))
		})
		if err := d.kernel.Join(group.id, pid); err != nil {
			return err
		}
	}
	next := node{res: m.res, since: time.Now()}
	if own != nil {
		next = *own
	}
	owner := by.Owner()
	next.group = group.res.Subject.ID
	if w := &next.requested[owner]; m.weight != 0 {
		w.Weight = m.weight
	} else if w.Weight == 0 {
		w.Weight = limit.DefaultWeight
	}
	if owner == enforce.OwnerUser {
		next.setUser(by.UID)
	}
	if _, err := tx.put(own, &next); err != nil {
		return err
	}
	tx.Then(func() {
		d.log.Info("taken into a group", "subject", m.res.Subject.String(), "group", next.group, "by", by.UID)
	})
	return nil
}

// dissolve ends a group; its members keep their other limits. The group goes last: the kernel could not take its members
// in again as they were.
func (tx *transaction) dissolve(group *node) error {
	for _, n := range tx.d.nodes.Sorted() {
		if n.group != group.res.Subject.ID {
			continue
		}
		next := n.alone()
		if _, err := tx.alter(n, &next); err != nil {
			return err
		}
	}
	return tx.lift(group)
}
