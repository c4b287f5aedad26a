package cpushare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
)

// commit brings the shares of next into force for a process; old is its former state, or nil if it had none. The
// caller holds t.mu.
func (t *Table) commit(ctx context.Context, by auth.Actor, old, next *entry) (warnings []string, err error) {
	if t.refuse != nil {
		return nil, t.refuse
	}
	processors, err := t.processors()
	if err != nil {
		return nil, err
	}
	switch {
	case old == nil:
		if err := t.checkQuota(by); err != nil {
			return nil, err
		}
		elsewhere, err := t.begin(ctx, by, processors, next)
		if err != nil {
			return nil, err
		}
		if err := t.keepSlots(); err != nil {
			return nil, errors.Join(err, t.end(ctx, processors, t.list[next.PID]))
		}
		if elsewhere > 0 {
			warnings = append(warnings, fmt.Sprintf("%d of its descendants are in groups of their own, and stay as they are", elsewhere))
		}
		t.smooth(processors, t.list[next.PID])
		return warnings, nil
	case next.nothing():
		return nil, t.end(ctx, processors, old)
	}
	before := *old
	*old = *next
	if err = t.apply(ctx, processors, old); err == nil {
		err = t.keepSlots()
	}
	if err != nil {
		*old = before
		return nil, errors.Join(err, t.apply(ctx, processors, old), t.keepSlots())
	}
	t.save()
	t.smooth(processors, old)
	return nil, nil
}

// checkQuota refuses a user's share beyond the quota.
func (t *Table) checkQuota(by auth.Actor) error {
	if by.Root() {
		return nil
	}
	own := 0
	for _, p := range t.list {
		if p.Wishes[enforce.OwnerUser] != (wish{}) && t.host.CountsAs(p.UserUID) == t.host.CountsAs(by.UID) {
			own++
		}
	}
	if own >= auth.MaxPowersPerUser {
		return &api.Error{
			Code:    api.CodeConflict,
			Message: fmt.Sprintf("you have set as many powers already as there may be: %d", auth.MaxPowersPerUser),
			Hint:    "lift some first: netnice power",
		}
	}
	return nil
}

// begin makes the group of a process that has none. Groups of shares inside the process's own are removed
// meanwhile, and made again inside the new group.
func (t *Table) begin(ctx context.Context, by auth.Actor, processors Processors, next *entry) (elsewhere int, err error) {
	group, err := processors.Place(next.PID)
	if err != nil {
		return 0, err
	}
	if group.Unit != "" {
		if left := t.mustStayIn(by, next.PID, group); left != "" {
			return 0, auth.Denied(fmt.Sprintf("process %d would leave %s, and with it the limits that the administrator may have set there", next.PID, left),
				command(next.PID, next.Wishes[by.Owner()]))
		}
	}
	p := *next
	p.Group = group
	t.list[p.PID] = &p
	t.save()
	inner := t.takeOut(ctx, processors, func(q *entry) bool { return t.inside(q, p.PID) })
	if elsewhere, err = processors.Make(ctx, &p.Group, p.PID, p.share()); err == nil {
		t.watch(&p)
	} else {
		t.forget(&p)
	}
	t.putIn(ctx, processors, inner)
	t.save()
	*next = p
	return elsewhere, err
}

// mustStayIn returns the cgroup that the caller may not leave for the group's scope, "" if there is none. The CPU
// controller may be in another hierarchy than limits are.
func (t *Table) mustStayIn(by auth.Actor, pid int, group cpu.Group) string {
	origin, err := t.resolver.ProcessCgroup(pid)
	if err != nil {
		origin = group.Origin // the process is in no cgroup that can have a limit
	}
	return t.host.MustStayIn(by, origin, group.Slice)
}

// inside reports whether the process of a share is a descendant of process pid.
func (t *Table) inside(p *entry, pid int) bool {
	if p.PID == pid {
		return false
	}
	for _, a := range t.resolver.Ancestors(p.PID) {
		if a.PID == pid {
			return true
		}
	}
	return false
}

// end removes the group of a process. The groups inside it move to the group around it.
func (t *Table) end(ctx context.Context, processors Processors, p *entry) error {
	inner := t.takeOut(ctx, processors, func(q *entry) bool { return within(q, p) })
	err := t.loosen(processors, p)
	if err == nil {
		err = processors.Dissolve(ctx, p.Group)
	}
	if err == nil {
		t.forget(p)
		t.passEnabled(p)
	}
	t.putIn(ctx, processors, inner)
	t.save()
	return errors.Join(err, t.keepSlots())
}

func within(q, p *entry) bool { return strings.HasPrefix(q.Group.Dir, p.Group.Dir+"/") }

// passEnabled makes another group beside p's switch the controller off when it goes.
func (t *Table) passEnabled(p *entry) {
	if !p.Group.Enabled {
		return
	}
	for _, q := range t.list {
		if filepath.Dir(q.Group.Dir) == filepath.Dir(p.Group.Dir) {
			q.Group.Enabled = true
			return
		}
	}
}

// apply sets the share of an existing group. Shares inside it are set again: a ceiling may not be higher than the
// one around it, so the inner groups have none until the outer one is set.
func (t *Table) apply(ctx context.Context, processors Processors, p *entry) error {
	var inner []*entry
	for _, q := range t.list {
		if within(q, p) {
			inner = append(inner, q)
		}
	}
	outermostFirst(inner)
	var err error
	for _, q := range inner {
		err = errors.Join(err, processors.Set(ctx, q.Group, cpu.Share{Weight: q.share().Weight}))
	}
	for _, q := range append([]*entry{p}, inner...) {
		err = errors.Join(err, processors.Set(ctx, q.Group, q.share()))
	}
	return err
}

func outermostFirst(list []*entry) {
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(len(a.Group.Dir), len(b.Group.Dir)), cmp.Compare(a.PID, b.PID))
	})
}

// takenOut is a share whose group is being moved.
type takenOut struct {
	*entry
	members []int
}

// takeOut dissolves the groups of the shares for which meant returns true, innermost first.
func (t *Table) takeOut(ctx context.Context, processors Processors, meant func(*entry) bool) (out []takenOut) {
	var list []*entry
	for _, q := range t.list {
		if meant(q) {
			list = append(list, q)
		}
	}
	outermostFirst(list)
	for _, q := range slices.Backward(list) {
		taken := takenOut{entry: q, members: processors.Members(q.Group)}
		if err := processors.Dissolve(ctx, q.Group); err != nil {
			t.log.Warn("a share of the processors is not moved", "pid", q.PID, "err", err)
			continue
		}
		t.passEnabled(q)
		out = append(out, taken)
	}
	slices.Reverse(out)
	return out
}

// putIn makes the groups of these shares again where their processes are now. Shares whose processes have all ended
// end.
func (t *Table) putIn(ctx context.Context, processors Processors, list []takenOut) {
	for _, p := range list {
		failed := fs.ErrNotExist
		for _, pid := range append([]int{p.PID}, p.members...) {
			var group cpu.Group
			if group, failed = processors.Place(pid); failed != nil {
				continue // the process has ended
			}
			p.Group = group
			_, failed = processors.Make(ctx, &p.Group, p.PID, p.share(), p.members...)
			break
		}
		if failed != nil {
			t.forget(p.entry)
			t.tell(api.EventPowerEnded, p.entry, "", failed.Error())
			t.log.Warn("a share of the processors has ended", "pid", p.PID, "err", failed)
		}
	}
}

// Look ends the shares that have no process left, and measures the CPU use of the others. The host calls it about once
// a second.
func (t *Table) Look(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	processors, now := t.found, time.Now()
	changed := t.endEmpty(ctx, 0)
	for _, p := range t.list {
		changed = t.keepDeadline(processors, p) || changed
		used := processors.Used(p.Group, p.usedNS)
		if over := now.Sub(p.usedAt); !p.usedAt.IsZero() && over > 0 && used >= p.usedNS {
			p.percent = float64(used-p.usedNS) / float64(over) * 100
		}
		p.usedNS, p.usedAt = used, now
		changed = t.learnName(p) || changed
		t.followAuto(ctx, p)
	}
	if changed {
		t.rewrite()
	}
}

// endEmpty ends the shares that have no process left, except that of one process. The caller holds t.mu.
func (t *Table) endEmpty(ctx context.Context, except int) (changed bool) {
	for pid, p := range t.list {
		if pid == except || len(t.found.Members(p.Group)) > 0 || !t.dissolveEmpty(ctx, t.found, p) {
			continue
		}
		t.forget(p)
		t.passEnabled(p)
		t.tell(api.EventPowerEnded, p, "", "")
		changed = true
	}
	return changed
}

// rewrite updates the slots and the state file. The caller holds t.mu.
func (t *Table) rewrite() {
	if err := t.keepSlots(); err != nil {
		t.log.Warn("slots are not kept", "err", err)
	}
	t.save()
}

func (t *Table) dissolveEmpty(ctx context.Context, processors Processors, p *entry) bool {
	err := processors.Dissolve(ctx, p.Group)
	if err != nil {
		t.log.Warn("an empty group is left", "group", p.Group.Dir, "err", err)
	}
	return err == nil
}

// Count returns the number of processes with a share.
func (t *Table) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.list)
}

// Lifted holds the shares that Lift has removed, for Resume.
type Lifted struct {
	list map[int]*entry
	out  []takenOut // the shares among them whose groups were removed
}

// Lift removes all groups. Afterwards requests fail with refuse.
func (t *Table) Lift(ctx context.Context, refuse error) (lifted Lifted, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.list {
		err = errors.Join(err, t.loosen(t.found, p))
	}
	lifted = Lifted{list: maps.Clone(t.list), out: t.takeOut(ctx, t.found, func(*entry) bool { return true })}
	for pid, p := range t.list {
		if len(t.found.Members(p.Group)) > 0 {
			err = errors.Join(err, fmt.Errorf("process %d keeps its share of the processors, in %s", pid, p.Group.Dir))
		}
		t.forget(p)
	}
	err = errors.Join(err, t.keepSlots())
	t.save()
	t.refuse = refuse
	return lifted, err
}

// Resume restores the shares that Lift has removed, and accepts requests again.
func (t *Table) Resume(ctx context.Context, lifted Lifted) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = nil
	maps.Copy(t.list, lifted.list)
	t.putIn(ctx, t.found, lifted.out)
	err := t.keepSlots()
	for _, p := range t.list {
		t.keepDeadline(t.found, p)
		t.watch(p)
	}
	t.save()
	return err
}
