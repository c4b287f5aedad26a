package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// matched holds the rules that match a process, by owner.
type matched [enforce.Owners]ownersMatch

// ownersMatch holds the rules in force for the process, and those for a part of its traffic.
type ownersMatch struct{ holding, destined []*rules.Rule }

func (m ownersMatch) all() []*rules.Rule { return slices.Concat(m.holding, m.destined) }

func (m ownersMatch) none() bool { return len(m.holding)+len(m.destined) == 0 }

func (m matched) none() bool { return m[enforce.OwnerAdmin].none() && m[enforce.OwnerUser].none() }

// match compares a process with the rules of the administrator and of its user. The caller holds d.rules.mu.
func (d *Daemon) match(f rules.Facts, now time.Time) (m matched) {
	for owner, set := range d.rules.sets(f.UID()) {
		if set == nil {
			continue
		}
		b := d.rules.users[f.UID()]
		if enforce.Owner(owner) != enforce.OwnerUser || b == nil {
			m[owner].holding, m[owner].destined = set.Match(f, now)
			continue
		}
		began := time.Now()
		if !b.debt.may(began) {
			continue // their present requests stay
		}
		m[owner].holding, m[owner].destined = set.Match(f, now)
		b.debt.took += time.Since(began)
	}
	return m
}

// executed applies the rules to a process after an exec. If no rule matches the new program, the present limits of the
// process stay: a process cannot leave a limit by exec.
func (d *Daemon) executed(ctx context.Context, e enforce.Exec) {
	p, ok := look(d.resolver, e.PID)
	if !ok {
		return
	}
	if d.rules.containers.Load() {
		p.Container() // before the lock, as this reads files of container engines
	}
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	// A directory's user who runs a program may have rules of their own. Their home has to be known for that.
	d.resolver.Accounts().Known(d.countsAs(p.facts.User))
	m := d.match(p, d.now())
	if m.none() {
		return
	}
	res, err := d.resolver.Resolve(ctx, identity.PIDSubject(e.PID))
	if err != nil || e.StartBoottimeNS != 0 && !identity.SameStart(res.StartBoottimeNS, e.StartBoottimeNS) {
		return // it has ended
	}
	d.tellMatched(res, p.facts.Exe, m)
	if d.applyRules(res, p.all(), m, d.now()) != nil {
		d.settleDestinations(m)
		d.log.Debug("rules applied", "pid", e.PID, "program", p.facts.Exe, "after_exec", time.Duration(identity.SinceNS(e.TimeNS)))
	}
	d.readyMatched(e.PID)
}

// applyToAll applies the rules to every process, parents first. Then it ends limits that no rule requests any more. New
// limits are in force before old ones go. The caller holds d.rules.mu.
func (d *Daemon) applyToAll(now time.Time) {
	d.learnDestinations(now)
	d.adaptation.LearnRules(d.rules.system.set, now)
	looked := make(map[*node]bool)
	if d.rules.any() {
		processes, err := d.resolver.Processes()
		if err != nil {
			d.complainOfRules(err)
			return
		}
		slices.SortFunc(processes, func(a, b identity.Ancestor) int {
			if a.StartBoottimeNS != b.StartBoottimeNS {
				return int(int64(a.StartBoottimeNS) - int64(b.StartBoottimeNS))
			}
			return a.PID - b.PID
		})
		for _, a := range processes {
			p, ok := look(d.resolver, a.PID)
			if !ok {
				continue
			}
			m := d.match(p, now)
			if m.none() {
				continue
			}
			res, err := d.resolver.Resolve(context.Background(), identity.PIDSubject(a.PID))
			if err == nil && identity.SameStart(res.StartBoottimeNS, a.StartBoottimeNS) {
				if n := d.applyRules(res, p.all(), m, now); n != nil {
					looked[n] = true
				}
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return
	}
	for _, n := range d.nodes.Sorted() {
		if !n.ruled.Empty() && n.ruled.Destined == 0 && !looked[n] {
			d.reviewRuled(n, now)
		}
	}
	d.followDestinations()
}

// reviewRuled checks whether the rules on a node still request it, by the facts of the process when they matched.
func (d *Daemon) reviewRuled(n *node, now time.Time) {
	next := *n
	if n.ruled.Shared != "" {
		next.ruled = d.reviewShared(n, now)
	} else {
		for owner := range n.ruled.Owners {
			next.ruled.Owners[owner] = d.reviewOwner(n, owner, now)
		}
	}
	d.changeRuled(n, &next)
}

// reviewOwner returns the present request of one owner's rules for a process's own node.
func (d *Daemon) reviewOwner(n *node, owner int, now time.Time) desired.OwnerRules {
	was := n.ruled.Owners[owner]
	if was.Facts == nil {
		return was
	}
	set := d.rules.sets(was.Facts.User)[owner]
	if set == nil {
		return was // not known: unchanged
	}
	holding, destined := set.Match(*was.Facts, now)
	out := ruledWishWith(was.Facts, slices.DeleteFunc(holding, func(r *rules.Rule) bool { return r.Share == rules.ShareAll }), destined)
	out.Facts = was.Facts
	return out
}

// reviewShared returns the present request of the rule of a shared node.
func (d *Daemon) reviewShared(n *node, now time.Time) desired.Rules {
	next := n.ruled
	for owner, set := range d.rules.sets(n.res.UID) {
		if set == nil || n.ruled.Owners[owner].Empty() {
			continue
		}
		next.Owners[owner] = desired.OwnerRules{}
		for _, r := range set.Rules() {
			if r.Key() == n.ruled.Shared && r.Active(now) {
				next.Owners[owner] = wishOf(r)
			}
		}
	}
	return next
}

// changeRuled brings the requests of rules for a node into force.
func (d *Daemon) changeRuled(n, next *node) {
	if n.ruled.Same(next.ruled) {
		return
	}
	err := d.settle(n, next, byRule)
	d.ruleFailed(n.res, err)
	if err == nil {
		d.log.Info("a rule's limit was changed", "subject", n.res.Subject.String(), "node", n.id, "lifted", next.empty())
	}
}

func (d *Daemon) ruleFailed(res identity.Resolved, err error) {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return // or the process has ended
	}
	d.complain(err)
	d.log.Debug("a rule does not hold", "subject", res.Subject.String(), "err", err)
}

// applyRules applies matching rules to a process. It returns the process's own node, if it has one then. If none of an
// owner's rules matches, the former requests of that owner's rules stay: a user cannot leave the administrator's limit
// by a rule of their own. The caller holds d.rules.mu.
func (d *Daemon) applyRules(res identity.Resolved, f *desired.Facts, m matched, now time.Time) *node {
	if res.Kind != enforce.KindTree || res.Key == uint64(d.pid) {
		return nil // the machine's first process stands for the host
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return nil
	}
	own := d.nodes.Find(res)
	for owner, list := range m {
		for _, r := range list.holding {
			if r.Share == rules.ShareAll && len(ruledWishOf([]*rules.Rule{r}).Rules) > 0 {
				d.ruleFailed(res, d.joinRule(res, own, enforce.Owner(owner), r))
			}
		}
	}
	around := d.treesAround(res, own)
	next := node{res: res, since: time.Now()}
	if own != nil {
		next = *own
	}
	for owner, list := range m {
		if list.none() {
			if own != nil {
				next.ruled.Owners[owner] = d.reviewOwner(own, owner, now)
			}
			continue
		}
		around := func(r *rules.Rule) bool {
			return slices.ContainsFunc(around, func(n *node) bool { return n.ruled.Has(r.Key()) })
		}
		keep := slices.DeleteFunc(slices.Clone(list.holding), func(r *rules.Rule) bool { return r.Share == rules.ShareAll || around(r) })
		if set := d.rules.sets(res.UID)[owner]; set != nil {
			next.ruled.Owners[owner] = ruledWishWith(f, keep, slices.DeleteFunc(slices.Clone(list.destined), around))
			next.ruled.Owners[owner].Facts = f
		}
		if enforce.Owner(owner) == enforce.OwnerUser && !next.ruled.Owners[owner].Empty() {
			next.setUser(res.UID)
		}
	}
	switch {
	case own != nil:
		d.changeRuled(own, &next)
		if next.empty() {
			return nil
		}
		return own
	case next.empty():
		return nil
	}
	if err := d.quotaOfRuled(&next); err != nil {
		// The administrator's rules hold for these processes together.
		for _, r := range m[enforce.OwnerAdmin].all() {
			if (r.Destined() || r.Share != rules.ShareAll) && wants(r) {
				err = errors.Join(err, d.joinRule(res, nil, enforce.OwnerAdmin, r))
			}
		}
		d.ruleFailed(res, err)
		return nil
	}
	n, err := d.commit(nil, &next)
	d.ruleFailed(res, err)
	if err != nil {
		return nil
	}
	d.tellSet(nil, n, byRule)
	d.log.Info("limit set by a rule", "subject", res.Subject.String(), "program", f.Exe, "node", n.id)
	return n
}

// treesAround lists the nodes of trees that a process is in, except its own, innermost first.
func (d *Daemon) treesAround(res identity.Resolved, own *node) []*node {
	var list []*node
	for _, id := range d.kernel.Trees(int(res.Key)) {
		if n := d.nodes.Get(id); n != nil && n != own {
			list = append(list, n)
		}
	}
	return list
}

// joinRule makes a process a member of the node of a rule that has one limit for all matching processes. Inside another
// tree it makes a node of its own there, so that a process cannot leave that tree by a rule. The caller holds both
// locks.
func (d *Daemon) joinRule(res identity.Resolved, own *node, owner enforce.Owner, r *rules.Rule) error {
	outer := uint32(0)
	for i, n := range d.treesAround(res, own) {
		if n.ruled.Has(r.Key()) {
			return nil
		}
		if i == 0 {
			outer = n.id
		}
	}
	uid := uint32(0)
	if owner == enforce.OwnerUser {
		uid = res.UID
	}
	var shared *node
	for n := range d.nodes.All() {
		if n.ruled.Shared == r.Key() && n.ruled.Outer == outer && n.res.UID == uid {
			shared = n
		}
	}
	isNew := shared == nil
	next := node{res: sharedSubject(r, outer, uid), since: time.Now(), ruled: desired.Rules{Shared: r.Key(), Outer: outer}}
	if isNew {
		if err := d.quota(auth.Actor{UID: uid}, true); err != nil {
			return err
		}
		next.ruled.Owners[owner] = wishOf(r)
		if owner == enforce.OwnerUser {
			next.setUser(uid)
		}
	}
	err := d.update(func(tx *transaction) (err error) {
		if isNew {
			shared, err = tx.put(nil, &next)
		}
		if err == nil {
			err = d.kernel.Join(shared.id, int(res.Key))
		}
		return err
	})
	if err != nil {
		return err
	}
	if isNew {
		d.tellSet(nil, shared, byRule)
	}
	d.log.Info("limit shared by a rule", "subject", res.Subject.String(), "rule", r.Name, "node", shared.id)
	return nil
}

// outerGone moves the nodes of rules inside a removed tree to the tree around that, and returns them. The caller holds
// d.mu.
func (d *Daemon) outerGone(gone *node) (moved []*node) {
	if gone.res.Kind != enforce.KindTree {
		return nil // nothing is inside it
	}
	for n := range d.nodes.All() {
		if n.ruled.Shared != "" && n.ruled.Outer == gone.id {
			n.ruled.Outer = gone.ruled.Outer
			d.file.Outdate()
			moved = append(moved, n)
		}
	}
	return moved
}
