package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/scope"
)

// takeOver reconciles the state file with the limits in force when the daemon starts. Limits that are in both are kept.
// Limits that are only in force become the administrator's. Limits that are only in the file are set again if their
// subject is still the same one; after a boot no process is the same. damaged.go says how far a damaged file is
// trusted.
func (d *Daemon) takeOver(ctx context.Context, saved *desired.State) error {
	inForce, err := d.kernel.Nodes()
	if err != nil {
		return fmt.Errorf("read the limits in force: %w", err)
	}
	slices.SortFunc(inForce, func(a, b enforce.NodeSpec) int { return int(a.ID) - int(b.ID) })
	if saved == nil {
		saved = &desired.State{}
	}
	d.nextID = max(saved.NextID, 1)
	sameBoot := saved.BootID == d.boot
	doubtful := saved.Damage != nil && sameBoot // the limits in force are newer

	var lost []*node
	older := make(map[uint32]uint32) // the file's number of a limit with another value in force, by the id in force
	byID := make(map[uint32]*node)
	for _, s := range saved.Nodes {
		n := nodeOf(s)
		byID[s.ID] = n
		if !sameBoot {
			for owner := range n.Timed {
				n.Timed[owner].MoveToThisBoot()
			}
		}
		if !sameBoot && n.forgetBoot() && n.empty() && !n.marker {
			d.log.Info("a stored limit is dropped", "subject", n.res.Subject.String(), "why", "it was for the time until a reboot")
			continue
		}
		i := -1
		if sameBoot && !n.res.Pending() {
			i = slices.IndexFunc(inForce, func(spec enforce.NodeSpec) bool { return plan.SameSubject(spec, n.spec()) })
		}
		if i < 0 {
			lost = append(lost, n)
			continue
		}
		if doubtful && !d.tallies(inForce[i], n) {
			if n.to == nil {
				older[inForce[i].ID] = s.ID
				continue
			}
			if !n.isEach() { // only the record has its destination, and the limit in force its rate
				n.Requested, n.Timed = d.requestedOf(inForce[i]), [enforce.Owners]desired.Timed{}
				n.takeLapses(inForce[i])
			}
		}
		n.id, n.applied = inForce[i].ID, true
		d.keepNode(n)
		inForce = slices.Delete(inForce, i, i+1)
	}
	for _, spec := range inForce {
		if spec.Store != 0 {
			d.stock[spec.ID] = spec
			continue
		}
		if saved.Damage != nil && spec.Kind == enforce.KindDestination {
			d.atStart.endedDestinations++
			d.log.Error("of a limit on a part of the traffic the damaged file does not say what it is for: it ends, unless a rule makes it anew", "node", spec.ID)
		}
		if n := d.stranger(ctx, spec); n != nil {
			d.keepNode(n)
			if number := older[n.id]; number != 0 {
				byID[number] = n
			}
			d.log.Warn("a limit in force that no file knows is adopted as the administrator's",
				"subject", n.res.Subject.String(), "node", n.id)
		}
	}
	adopted := d.nodes.Len()
	for _, n := range lost {
		if doubtful {
			d.log.Warn("a limit of the damaged file is not in force, and is not set again: it may have been lifted", "subject", n.res.Subject.String(),
				"up", n.Requested[enforce.OwnerAdmin].Up, "down", n.Requested[enforce.OwnerAdmin].Down, "total", n.Requested[enforce.OwnerAdmin].Total)
			continue
		}
		d.restore(ctx, n, sameBoot)
	}
	for n := range d.nodes.All() {
		d.startWatch(n)
	}
	d.compare(func() {}) // adoptToward tells the kernel, as soon as it knows what the nodes are under
	d.adoptToward(byID)
	if err := d.kernel.Settle(); err != nil {
		d.log.Warn("what another release left in force is not removed", "err", err)
	}
	d.sweepScopes()
	if d.nodes.Len() > 0 {
		d.hadNodes.Store(true)
		d.atStart.adopted, d.atStart.setAgain = adopted, d.nodes.Len()-adopted
		d.log.Info("limits taken up again", "adopted", adopted, "set_again", d.nodes.Len()-adopted)
	}
	_ = d.file.Save() // Save notes a failure; the limits in force are maintained all the same
	return nil
}

// restore puts a node of the file that is not in force back into the desired state, under its id if that is free.
// compare then sets it.
func (d *Daemon) restore(ctx context.Context, n *node, sameBoot bool) {
	dropped := func(why string) {
		d.log.Info("a stored limit is dropped", "subject", n.res.Subject.String(), "why", why)
	}
	switch n.res.Kind {
	case enforce.KindTree:
		if !sameBoot || !d.resolver.Alive(int(n.res.Key), n.res.StartBoottimeNS) && !d.kernel.Inherits(n.spec()) {
			dropped("its process has ended")
			return
		}
	case enforce.KindDestination:
		if !sameBoot && n.to == nil {
			return // the rules imply it
		}
	case enforce.KindLink:
		if identity.LinkGone(n.res.Subject) {
			dropped("its network namespace has gone")
			return
		}
		n.res.Key = 0 // until followNames finds the device
		if res, err := d.resolver.Resolve(ctx, n.res.Subject); err == nil {
			n.res = res
		}
	case enforce.KindCgroup:
		if n.scope != nil && !sameBoot {
			dropped("its process has ended")
			return
		}
		res, err := d.resolver.Resolve(ctx, n.res.Subject)
		switch {
		case err == nil:
			res.Name = n.res.Name
			n.res = res
		case n.res.Subject.Kind == api.KindCgroup && sameBoot && !n.res.Pending() && identity.IsNotFound(err):
			dropped("its cgroup was removed")
			return
		default: // services may start after the daemon: wait for them
			n.res.Key, n.res.Dir = 0, ""
		}
	}
	if d.used(n.id) || n.id >= enforce.FirstSocketNode {
		n.id = d.freeID()
	}
	d.keepNode(n)
}

// stranger makes a node for a limit in force that is not in the file. It returns nil for a kind that this daemon does
// not know.
func (d *Daemon) stranger(ctx context.Context, spec enforce.NodeSpec) *node {
	n := &node{id: spec.ID, Wanted: plan.Wanted{Requested: d.requestedOf(spec)}, since: time.Now(), applied: true}
	n.takeLapses(spec)
	switch spec.Kind {
	case enforce.KindHost:
		n.res = identity.Host()
	case enforce.KindUser:
		n.res = identity.User(uint32(spec.Subject))
	case enforce.KindTree:
		n.res = identity.Resolved{Subject: identity.PIDSubject(int(spec.Subject)), Name: "(ended)"}
		if res, err := d.resolver.Resolve(ctx, n.res.Subject); err == nil && identity.SameStart(res.StartBoottimeNS, spec.StartBoottimeNS) {
			n.res = res
		}
		n.res.StartBoottimeNS = spec.StartBoottimeNS
	case enforce.KindCgroup:
		n.res, n.scope = d.strangerCgroup(spec.Subject)
	case enforce.KindLink:
		n.res = d.resolver.StrangeLink(spec.Subject)
	case enforce.KindDestination:
		return nil // the rules imply it, and make it again
	case enforce.KindSocket:
		return nil // the kernel side's own
	default: // the function known has no such kind
		d.log.Warn("a node of an unknown kind is left alone", "node", spec.ID, "kind", spec.Kind)
		return nil
	}
	n.res.Kind, n.res.Key = spec.Kind, spec.Subject
	n.setUser(n.res.UID)
	if !n.IsCommanded() {
		n.Requested[enforce.OwnerAdmin].Weight = limit.DefaultWeight
	}
	return n
}

func (d *Daemon) strangerCgroup(id uint64) (identity.Resolved, *desired.Scope) {
	res := identity.Resolved{
		Subject: api.Subject{Kind: api.KindCgroup, ID: fmt.Sprintf("/(removed, id %d)", id)},
		Name:    "(removed)",
	}
	root, err := d.resolver.CgroupRoot()
	if err != nil {
		return res, nil
	}
	dir, err := d.resolver.CgroupByID(id)
	if err != nil || dir == "" {
		return res, nil
	}
	res.Subject.ID, res.Name, res.Dir = strings.TrimPrefix(dir, root), filepath.Base(dir), dir
	if filepath.Dir(dir) == filepath.Join(root, d.opts.ScopeFolder) {
		if pid, err := strconv.Atoi(strings.TrimPrefix(res.Name, scope.RunPrefix)); err == nil {
			return res, &desired.Scope{PID: pid, Made: true, Origin: "/"}
		}
	}
	return res, nil
}
