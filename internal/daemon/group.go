package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// A group is one limit for several named processes. Each member, with its descendants, is a node inside the group's
// node. Members therefore share by weight, whatever number of processes and connections each has. The group ends with
// its last member.

var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

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

// setGroup makes a group, changes its limit, or adds processes.
func (d *Daemon) setGroup(ctx context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error) {
	none := api.SetResponse{Version: api.Version}
	if !groupName.MatchString(req.Subject.ID) {
		return none, badGroup("%q is no name for a group: letters, digits, dots and dashes, at most 64", req.Subject.ID)
	}
	if req.Scope {
		return none, badGroup("a group has no scope: name its processes")
	}
	members, err := d.resolveMembers(ctx, by, req.Members)
	if err != nil {
		return none, err
	}
	lifted := false
	defer func() { d.drain(lifted) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return none, leaving()
	}
	n := d.nodes.FindName(req.Subject)
	fresh := node{res: groupOf(req.Subject.ID, 0), since: time.Now()}
	if !by.Root() {
		fresh.res.UID = by.UID
	}
	switch {
	case n != nil:
		fresh = *n
	case len(members) == 0:
		return none, &api.Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("there is no group %s", req.Subject.ID),
			Hint: "netnice fair --group " + req.Subject.ID + " --up RATE PID...",
		}
	case (limit.Limit{}).Merge(req.Wish).Empty():
		return none, &api.Error{Code: api.CodeBadRequest, Message: "a new group needs a rate that its members share", Hint: fairCommand(req)}
	}
	if err := auth.Check(by, auth.Set, auth.Target{Subject: req.Subject, Kind: enforce.KindTree, UID: fresh.res.UID, Wish: req.Wish}); err != nil {
		return none, err
	}
	if err := d.checkMembers(by, &fresh, members); err != nil {
		var refused *api.Error
		if errors.As(err, &refused) && refused.Code == api.CodeDenied {
			return none, auth.Denied(refused.Message, "sudo "+fairCommand(req))
		}
		return none, err
	}
	answer := none
	if n == nil || req.Wish != (api.Wish{}) {
		if answer, err = d.setLocked(by, req, n, fresh); err != nil {
			return answer, err
		}
		lifted = answer.Changed && limit.LiftsOnly(req.Wish)
	}
	if req.DryRun || len(members) == 0 {
		return answer, nil
	}
	n = d.nodes.FindName(req.Subject)
	if n == nil {
		return answer, badGroup("a group without a limit takes nobody in")
	}
	for _, m := range members {
		if err := d.takeIn(by, n, m); err != nil {
			if fresh.id == 0 {
				err = errors.Join(err, d.dissolve(n))
			}
			return none, kernelError(m.res.Subject, err)
		}
	}
	answer.Changed, answer.Node = true, d.show(by, n, d.lookAt(n, false))
	for _, warning := range d.unwrittenWarnings(d.file.Path(), false) {
		if !slices.Contains(answer.Warnings, warning) { // setLocked may have said so
			answer.Warnings = append(answer.Warnings, warning)
		}
	}
	return answer, nil
}

// fairCommand returns a command that makes a group of the members in a request.
func fairCommand(req api.SetRequest) string {
	words := []string{"netnice fair"}
	if len(req.Members) > 0 && req.Subject.ID != fmt.Sprintf("fair-%d", req.Members[0].PID) {
		words = append(words, "--group", req.Subject.ID)
	}
	rates := 0
	for _, r := range limit.Rates {
		if rate := r.Asked(&req.Wish); rate != nil && *rate != 0 && !r.Least {
			words = append(words, "--"+r.Name, auth.RateText(*rate))
			rates++
		}
	}
	if rates == 0 {
		words = append(words, "--total 10MB/s")
	}
	for _, m := range req.Members {
		word := strconv.Itoa(m.PID)
		if m.Weight != 0 {
			word += fmt.Sprintf("=%d", m.Weight)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func badGroup(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: "netnice fair --help"}
}

// resolveMembers looks up the processes that are to become members.
func (d *Daemon) resolveMembers(ctx context.Context, by auth.Actor, list []api.Member) (members []member, err error) {
	for _, m := range list {
		subject := identity.PIDSubject(m.PID)
		weight := m.Weight
		if weight != 0 {
			if err := checkWish(by, api.SetRequest{Subject: subject, Wish: api.Wish{Weight: &weight}}); err != nil {
				return nil, err
			}
		}
		res, err := d.resolver.Resolve(ctx, subject)
		if err != nil {
			return nil, err
		}
		if res.Kind != enforce.KindTree {
			return nil, badGroup("process %d stands for the whole machine", m.PID)
		}
		members = append(members, member{res: res, weight: weight})
	}
	return members, nil
}

// checkMembers refuses processes that the caller may not limit, and members of other groups. It also refuses processes
// that are not inside the same trees as the other members. The caller holds d.mu.
func (d *Daemon) checkMembers(by auth.Actor, group *node, members []member) error {
	known := group.id != 0
	for _, m := range members {
		own := d.nodes.Find(m.res)
		if err := auth.Check(by, auth.Set, target(own, m.res, m.res.Subject, api.Wish{})); err != nil {
			return err
		}
		if own != nil {
			if err := d.others(by, own, m.res.Subject); err != nil {
				return err
			}
		} else if err := d.quota(by, true); err != nil {
			return err
		}
		outer := uint32(0)
		for _, around := range d.treesAround(m.res, own) {
			if around.id == group.id {
				outer = group.ruled.Outer
				break
			}
			if around.res.Subject.Kind == api.KindGroup {
				return &api.Error{
					Code: api.CodeBadRequest, Message: fmt.Sprintf("process %s is in %s already", m.res.Subject.ID, around.res.Subject),
					Hint: "take it out first: netnice fair --leave " + m.res.Subject.ID,
				}
			}
			if outer == 0 {
				outer = around.id
			}
		}
		if !known {
			group.ruled.Outer, known = outer, true
		}
		if outer != group.ruled.Outer {
			return badGroup("process %s is inside the limit of %s, and others of the group are not", m.res.Subject.ID, d.nameOf(max(outer, group.ruled.Outer)))
		}
	}
	return nil
}

func (d *Daemon) nameOf(id uint32) string {
	if n := d.nodes.Get(id); n != nil {
		return n.res.Subject.String()
	}
	return "another process"
}

// takeIn makes a process, with its descendants, a member. The caller holds d.mu.
func (d *Daemon) takeIn(by auth.Actor, group *node, m member) error {
	defer d.observe.Outdate()
	if !slices.Contains(d.kernel.Trees(int(m.res.Key)), group.id) {
		if err := d.kernel.Join(group.id, int(m.res.Key)); err != nil {
			return err
		}
	}
	own := d.nodes.Find(m.res)
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
	_, err := d.commit(own, &next)
	if err == nil {
		d.log.Info("taken into a group", "subject", m.res.Subject.String(), "group", next.group, "by", by.UID)
	}
	return err
}

// dissolve ends a group; its members keep their other limits. The caller holds d.mu.
func (d *Daemon) dissolve(group *node) error {
	if err := d.drop(group); err != nil {
		return err
	}
	var errs []error
	for _, n := range d.nodes.Sorted() {
		if n.group != group.res.Subject.ID {
			continue
		}
		next := n.alone()
		if next.empty() {
			errs = append(errs, d.drop(n))
		} else {
			_, err := d.commit(n, &next)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
