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
	i := &inherited{
		d: d, sameBoot: sameBoot, isDamaged: saved.Damage != nil, doubtful: saved.Damage != nil && sameBoot,
		unknown: inForce, older: make(map[uint32]uint32), byID: make(map[uint32]*node),
	}
	for _, record := range saved.Nodes {
		i.match(record)
	}
	for _, spec := range i.unknown {
		i.adoptUnknown(ctx, spec)
	}
	adopted := d.nodes.Len()
	for _, n := range i.lost {
		i.restore(ctx, n)
	}
	for n := range d.nodes.All() {
		d.startWatch(n)
	}
	d.compare(func() {}) // adoptDestinations tells the kernel, as soon as it knows what the nodes are under
	d.adoptDestinations(i.byID)
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

// inherited holds the limits in force and those of the state file while takeOver compares them.
type inherited struct {
	d         *Daemon
	sameBoot  bool // the file was written in this boot
	isDamaged bool // the file is damaged
	doubtful  bool // the file is damaged, and the limits in force are newer

	unknown []enforce.NodeSpec // in force, and not in the records so far; by id
	lost    []*node            // in the file, and not in force
	older   map[uint32]uint32  // the file's number of a limit with another value in force, by the id in force
	byID    map[uint32]*node   // nodes by their numbers in the file
}

// match compares a record of the file with the limits in force.
func (i *inherited) match(record desired.Record) {
	n := nodeOf(record)
	i.byID[record.ID] = n
	if !i.sameBoot && endsWithBoot(n) {
		i.d.logDropped(n, "it was for the time until a reboot")
		return
	}
	at := -1
	if i.sameBoot && !n.res.Pending() {
		at = slices.IndexFunc(i.unknown, func(spec enforce.NodeSpec) bool { return plan.SameSubject(spec, n.spec()) })
	}
	if at < 0 {
		i.lost = append(i.lost, n)
		return
	}
	spec := i.unknown[at]
	if i.doubtful && !i.d.tallies(spec, n) {
		if n.to == nil {
			i.older[spec.ID] = record.ID
			return
		}
		if !n.isEach() { // only the record has its destination, and the limit in force its rate
			n.Requested, n.Timed = i.d.requestedOf(spec), [enforce.Owners]desired.Timed{}
			n.takeLapses(spec)
		}
	}
	n.id, n.applied = spec.ID, true
	i.d.keepNode(n)
	i.unknown = slices.Delete(i.unknown, at, at+1)
}

// endsWithBoot removes what a node of a former boot had for that boot only. It reports whether nothing is left.
func endsWithBoot(n *node) bool {
	return n.forgetBoot() && n.empty() && !n.marker
}

// adoptUnknown takes over a limit in force that no record of the file has.
func (i *inherited) adoptUnknown(ctx context.Context, spec enforce.NodeSpec) {
	d := i.d
	if spec.Store != 0 {
		d.peers.Adopt(spec)
		return
	}
	if i.isDamaged && spec.Kind == enforce.KindDestination {
		d.atStart.endedDestinations++
		d.log.Error("of a limit on a part of the traffic the damaged file does not say what it is for: it ends, unless a rule makes it anew", "node", spec.ID)
	}
	n := d.stranger(ctx, spec)
	if n == nil {
		return
	}
	d.keepNode(n)
	if number := i.older[n.id]; number != 0 {
		i.byID[number] = n
	}
	d.log.Warn("a limit in force that no file knows is adopted as the administrator's",
		"subject", n.res.Subject.String(), "node", n.id)
}

// logDropped logs that a limit of the file is not set again.
func (d *Daemon) logDropped(n *node, why string) {
	d.log.Info("a stored limit is dropped", "subject", n.res.Subject.String(), "why", why)
}

// restore puts a node of the file that is not in force back into the desired state, under its id if that is free.
// compare then sets it.
func (i *inherited) restore(ctx context.Context, n *node) {
	d := i.d
	if i.doubtful {
		d.log.Warn("a limit of the damaged file is not in force, and is not set again: it may have been lifted", "subject", n.res.Subject.String(),
			"up", n.Requested[enforce.OwnerAdmin].Up, "down", n.Requested[enforce.OwnerAdmin].Down, "total", n.Requested[enforce.OwnerAdmin].Total)
		return
	}
	if n.res.Kind == enforce.KindDestination && !i.sameBoot && n.to == nil {
		return // the rules imply it
	}
	if gone := i.findAgain(ctx, n); gone != "" {
		d.logDropped(n, gone)
		return
	}
	if d.used(n.id) || n.id >= enforce.FirstSocketNode {
		n.id = d.freeID()
	}
	d.keepNode(n)
}

// findAgain looks for the subject of a node that is not in force, and stores what it is now. It returns why the subject
// has gone for good, "" if it has not. A subject that may still appear is pending.
func (i *inherited) findAgain(ctx context.Context, n *node) (gone string) {
	switch n.res.Kind {
	case enforce.KindTree:
		if !i.sameBoot || !i.d.resolver.Alive(int(n.res.Key), n.res.StartBoottimeNS) && !i.d.kernel.Inherits(n.spec()) {
			return "its process has ended"
		}
	case enforce.KindLink:
		if identity.LinkGone(n.res.Subject) {
			return "its network namespace has gone"
		}
		n.res.Key = 0 // until followNames finds the device
		if res, err := i.d.resolver.Resolve(ctx, n.res.Subject); err == nil {
			n.res = res
		}
	case enforce.KindCgroup:
		return i.findCgroup(ctx, n)
	}
	return ""
}

// findCgroup is findAgain for a cgroup.
func (i *inherited) findCgroup(ctx context.Context, n *node) (gone string) {
	if n.scope != nil && !i.sameBoot {
		return "its process has ended"
	}
	res, err := i.d.resolver.Resolve(ctx, n.res.Subject)
	switch {
	case err == nil:
		res.Name = n.res.Name
		n.res = res
	case n.res.Subject.Kind == api.KindCgroup && i.sameBoot && !n.res.Pending() && identity.IsNotFound(err):
		return "its cgroup was removed"
	default: // services may start after the daemon: wait for them
		n.res.Key, n.res.Dir = 0, ""
	}
	return ""
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
