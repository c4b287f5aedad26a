package daemon

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

// commitPower brings the shares of next into force for a process; old is its former state, or nil if it had none. The
// caller holds d.powers.mu.
func (d *Daemon) commitPower(ctx context.Context, by auth.Actor, old, next *powered) (warnings []string, err error) {
	if d.powers.isDown {
		return nil, leaving()
	}
	processors, err := d.processors()
	if err != nil {
		return nil, err
	}
	switch {
	case old == nil:
		if err := d.roomForPower(by); err != nil {
			return nil, err
		}
		elsewhere, err := d.beginPower(ctx, by, processors, next)
		if err != nil {
			return nil, err
		}
		if err := d.keepSlots(); err != nil {
			return nil, errors.Join(err, d.endPower(ctx, processors, d.powers.list[next.PID]))
		}
		if elsewhere > 0 {
			warnings = append(warnings, fmt.Sprintf("%d of its descendants are in groups of their own, and stay as they are", elsewhere))
		}
		d.smooth(processors, d.powers.list[next.PID])
		return warnings, nil
	case next.nothing():
		return nil, d.endPower(ctx, processors, old)
	}
	before := *old
	*old = *next
	if err = d.setPower(ctx, processors, old); err == nil {
		err = d.keepSlots()
	}
	if err != nil {
		*old = before
		return nil, errors.Join(err, d.setPower(ctx, processors, old), d.keepSlots())
	}
	d.savePowers()
	d.smooth(processors, old)
	return nil, nil
}

// roomForPower refuses a user's share beyond the quota.
func (d *Daemon) roomForPower(by auth.Actor) error {
	if by.Root() {
		return nil
	}
	own := 0
	for _, p := range d.powers.list {
		if p.Wishes[enforce.OwnerUser] != (powerWish{}) && d.countsAs(p.UserUID) == d.countsAs(by.UID) {
			own++
		}
	}
	if own >= auth.MaxPowersPerUser {
		return full("you have set as many powers as", auth.MaxPowersPerUser, "lift some first: netnice power")
	}
	return nil
}

// beginPower makes the group of a process that has none. Groups of shares inside the process's own are removed
// meanwhile, and made again inside the new group.
func (d *Daemon) beginPower(ctx context.Context, by auth.Actor, processors Processors, next *powered) (elsewhere int, err error) {
	group, err := processors.Place(next.PID)
	if err != nil {
		return 0, err
	}
	if group.Unit != "" {
		if left := d.leftByPower(by, next.PID, group); left != "" {
			return 0, auth.Denied(fmt.Sprintf("process %d would leave %s, and with it the limits that the administrator may have set there", next.PID, left),
				powerCommand(next.PID, next.Wishes[by.Owner()]))
		}
	}
	p := *next
	p.Group = group
	d.powers.list[p.PID] = &p
	d.savePowers()
	inner := d.takeOut(ctx, processors, func(q *powered) bool { return d.inside(q, p.PID) })
	if elsewhere, err = processors.Make(ctx, &p.Group, p.PID, p.share()); err == nil {
		d.watchPower(&p)
	} else {
		d.forgetPower(&p)
	}
	d.putIn(ctx, processors, inner)
	d.savePowers()
	*next = p
	return elsewhere, err
}

// leftByPower is leftByUser for a scope of the CPU controller's, which may be in another hierarchy than limits are.
func (d *Daemon) leftByPower(by auth.Actor, pid int, group cpu.Group) string {
	origin, err := d.resolver.ProcessCgroup(pid)
	if err != nil {
		origin = group.Origin // the process is in no cgroup that can have a limit
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leftByUser(by, origin, group.Slice)
}

// inside reports whether the process of a share is a descendant of process pid.
func (d *Daemon) inside(p *powered, pid int) bool {
	if p.PID == pid {
		return false
	}
	for _, a := range d.resolver.Ancestors(p.PID) {
		if a.PID == pid {
			return true
		}
	}
	return false
}

// endPower removes the group of a process. The groups inside it move to the group around it.
func (d *Daemon) endPower(ctx context.Context, processors Processors, p *powered) error {
	inner := d.takeOut(ctx, processors, func(q *powered) bool { return within(q, p) })
	err := d.loosen(processors, p)
	if err == nil {
		err = processors.Dissolve(ctx, p.Group)
	}
	if err == nil {
		d.forgetPower(p)
		d.passEnabled(p)
	}
	d.putIn(ctx, processors, inner)
	d.savePowers()
	return errors.Join(err, d.keepSlots())
}

func within(q, p *powered) bool { return strings.HasPrefix(q.Group.Dir, p.Group.Dir+"/") }

// passEnabled makes another group beside p's switch the controller off when it goes.
func (d *Daemon) passEnabled(p *powered) {
	if !p.Group.Enabled {
		return
	}
	for _, q := range d.powers.list {
		if filepath.Dir(q.Group.Dir) == filepath.Dir(p.Group.Dir) {
			q.Group.Enabled = true
			return
		}
	}
}

// setPower sets the share of an existing group. Shares inside it are set again: a ceiling may not be higher than the
// one around it, so the inner groups have none until the outer one is set.
func (d *Daemon) setPower(ctx context.Context, processors Processors, p *powered) error {
	var inner []*powered
	for _, q := range d.powers.list {
		if within(q, p) {
			inner = append(inner, q)
		}
	}
	outermostFirst(inner)
	var err error
	for _, q := range inner {
		err = errors.Join(err, processors.Set(ctx, q.Group, cpu.Share{Weight: q.share().Weight}))
	}
	for _, q := range append([]*powered{p}, inner...) {
		err = errors.Join(err, processors.Set(ctx, q.Group, q.share()))
	}
	return err
}

func outermostFirst(list []*powered) {
	slices.SortFunc(list, func(a, b *powered) int {
		return cmp.Or(cmp.Compare(len(a.Group.Dir), len(b.Group.Dir)), cmp.Compare(a.PID, b.PID))
	})
}

// takenOut is a share whose group is being moved.
type takenOut struct {
	*powered
	members []int
}

// takeOut dissolves the groups of the shares for which meant returns true, innermost first.
func (d *Daemon) takeOut(ctx context.Context, processors Processors, meant func(*powered) bool) (out []takenOut) {
	var list []*powered
	for _, q := range d.powers.list {
		if meant(q) {
			list = append(list, q)
		}
	}
	outermostFirst(list)
	for _, q := range slices.Backward(list) {
		t := takenOut{powered: q, members: processors.Members(q.Group)}
		if err := processors.Dissolve(ctx, q.Group); err != nil {
			d.log.Warn("a share of the processors is not moved", "pid", q.PID, "err", err)
			continue
		}
		d.passEnabled(q)
		out = append(out, t)
	}
	slices.Reverse(out)
	return out
}

// putIn makes the groups of these shares again where their processes are now. Shares whose processes have all ended
// end.
func (d *Daemon) putIn(ctx context.Context, processors Processors, list []takenOut) {
	for _, t := range list {
		failed := fs.ErrNotExist
		for _, pid := range append([]int{t.PID}, t.members...) {
			var group cpu.Group
			if group, failed = processors.Place(pid); failed != nil {
				continue // the process has ended
			}
			t.Group = group
			_, failed = processors.Make(ctx, &t.Group, t.PID, t.share(), t.members...)
			break
		}
		if failed != nil {
			d.forgetPower(t.powered)
			d.tellPower(api.EventPowerEnded, t.powered, "", failed.Error())
			d.log.Warn("a share of the processors has ended", "pid", t.PID, "err", failed)
		}
	}
}

// lookAtPowers ends the shares that have no process left, and measures the CPU use of the others.
func (d *Daemon) lookAtPowers(ctx context.Context) {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	processors, now := d.powers.processors, time.Now()
	changed := d.endEmptyPowers(ctx, 0)
	for _, p := range d.powers.list {
		changed = d.keepDeadline(processors, p) || changed
		used := processors.Used(p.Group, p.usedNS)
		if over := now.Sub(p.usedAt); !p.usedAt.IsZero() && over > 0 && used >= p.usedNS {
			p.percent = float64(used-p.usedNS) / float64(over) * 100
		}
		p.usedNS, p.usedAt = used, now
		changed = d.learnPower(p) || changed
		d.followAuto(ctx, p)
	}
	if changed {
		d.powersChanged()
	}
}

// endEmptyPowers ends the shares that have no process left, except that of one process. The caller holds d.powers.mu.
func (d *Daemon) endEmptyPowers(ctx context.Context, except int) (changed bool) {
	for pid, p := range d.powers.list {
		if pid == except || len(d.powers.processors.Members(p.Group)) > 0 || !d.dissolveEmpty(ctx, d.powers.processors, p) {
			continue
		}
		d.forgetPower(p)
		d.passEnabled(p)
		d.tellPower(api.EventPowerEnded, p, "", "")
		changed = true
	}
	return changed
}

// powersChanged updates the slots and the state file. The caller holds d.powers.mu.
func (d *Daemon) powersChanged() {
	if err := d.keepSlots(); err != nil {
		d.log.Warn("slots are not kept", "err", err)
	}
	d.savePowers()
}

func (d *Daemon) dissolveEmpty(ctx context.Context, processors Processors, p *powered) bool {
	err := processors.Dissolve(ctx, p.Group)
	if err != nil {
		d.log.Warn("an empty group is left", "group", p.Group.Dir, "err", err)
	}
	return err == nil
}

// powerCount returns the number of processes with a share.
func (d *Daemon) powerCount() int {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	return len(d.powers.list)
}

// liftedPowers holds the shares that liftPowers has removed.
type liftedPowers struct {
	list map[int]*powered
	out  []takenOut // the shares among them whose groups were removed
}

// liftPowers removes all groups. Afterwards no share can be set.
func (d *Daemon) liftPowers(ctx context.Context) (lifted liftedPowers, err error) {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	for _, p := range d.powers.list {
		err = errors.Join(err, d.loosen(d.powers.processors, p))
	}
	lifted = liftedPowers{list: maps.Clone(d.powers.list), out: d.takeOut(ctx, d.powers.processors, func(*powered) bool { return true })}
	for pid, p := range d.powers.list {
		if len(d.powers.processors.Members(p.Group)) > 0 {
			err = errors.Join(err, fmt.Errorf("process %d keeps its share of the processors, in %s", pid, p.Group.Dir))
		}
		d.forgetPower(p)
	}
	err = errors.Join(err, d.keepSlots())
	d.savePowers()
	d.powers.isDown = true
	return lifted, err
}

// admitPowers restores the shares that were lifted, and allows new ones, after going down has failed.
func (d *Daemon) admitPowers(ctx context.Context, lifted liftedPowers) error {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	d.powers.isDown = false
	maps.Copy(d.powers.list, lifted.list)
	d.putIn(ctx, d.powers.processors, lifted.out)
	err := d.keepSlots()
	for _, p := range d.powers.list {
		d.keepDeadline(d.powers.processors, p)
		d.watchPower(p)
	}
	d.savePowers()
	return err
}
