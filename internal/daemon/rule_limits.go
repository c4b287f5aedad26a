package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/source/rulefiles"
)

// ruleSource returns the source of limits by files of rules.
func (d *Daemon) ruleSource() *rulefiles.Source {
	return rulefiles.New(rulefiles.Options{
		Log: d.log, Kernel: d.kernel, Resolver: d.resolver, Host: ruleHost{d}, Dir: d.opts.RulesDir, OnDemand: d.opts.OnDemand,
		Homes: d.opts.Homes, Hangup: d.opts.Hangup, Tick: d.opts.Tick, Now: d.now,
	})
}

// Rules implements apiserver.Backend.
func (d *Daemon) Rules(_ context.Context, by auth.Actor) (api.RuleList, error) {
	return d.rules.List(by), nil
}

// ReloadRules implements apiserver.Backend.
func (d *Daemon) ReloadRules(ctx context.Context, by auth.Actor) (api.RuleList, error) {
	return d.rules.Reload(ctx, by)
}

// TestRules implements apiserver.Backend.
func (d *Daemon) TestRules(ctx context.Context, by auth.Actor, pid int) (api.RuleTest, error) {
	return d.rules.Test(ctx, by, pid)
}

// ruleHost brings into force what rules request. The lock of the rules is taken before d.mu. These methods therefore
// take d.mu, and nothing calls the source under d.mu.
type ruleHost struct{ *Daemon }

var _ rulefiles.Host = ruleHost{}

// CountsAs implements rulefiles.Host.
func (h ruleHost) CountsAs(uid uint32) uint32 { return h.countsAs(uid) }

// IsDown implements rulefiles.Host.
func (h ruleHost) IsDown() bool { return h.down() }

// Publish implements rulefiles.Host.
func (h ruleHost) Publish(uids [2]uint32, event func() api.Event) { h.publishEvent(uids, event) }

// LimitCounts implements rulefiles.Host.
func (h ruleHost) LimitCounts() map[string]int {
	count := h.observe.Snapshot().RuleCounts()
	for _, key := range h.adaptation.RuledHosts() {
		count[key]++
	}
	return count
}

// Learn implements rulefiles.Host.
func (h ruleHost) Learn(now time.Time, administrators *rules.Set, all rulefiles.Destinations) {
	h.mu.Lock()
	h.destinations.Learn(all)
	h.mu.Unlock()
	h.adaptation.LearnRules(administrators, now)
}

// Review implements rulefiles.Host.
func (h ruleHost) Review(looked map[uint32]bool, next func(uid uint32, before desired.Rules) desired.Rules) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDown {
		return
	}
	for _, n := range h.nodes.Sorted() {
		if !n.Ruled.Empty() && n.Ruled.Destined == 0 && !looked[n.id] {
			changed := *n
			changed.Ruled = next(n.res.UID, n.Ruled)
			h.changeRuled(n, &changed)
		}
	}
	h.destinations.Follow()
}

// Apply implements rulefiles.Host.
func (h ruleHost) Apply(p rulefiles.Process) (node uint32, ok bool) {
	node, ok = h.applyRules(p)
	if p.Exec == nil {
		return node, ok
	}
	if ok || p.IsDestined { // rules may hold for the process together with others
		h.settleDestinations(p.IsDestined)
	}
	if ok {
		// The limits are in force now. The queue for datagrams may take longer.
		h.log.Debug("rules applied", "pid", p.Key, "program", p.Program, "after_exec", time.Duration(identity.SinceNS(p.Exec.TimeNS)))
	}
	h.readyMatched(int(p.Key))
	return node, ok
}

// settleDestinations brings parts of the traffic into force after rules were applied to a process.
func (d *Daemon) settleDestinations(isDestined bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destinations.AssignRules(isDestined)
}

// applyRules brings into force what rules request of a process, except for parts of its traffic.
func (d *Daemon) applyRules(p rulefiles.Process) (id uint32, ok bool) {
	if p.Kind != enforce.KindTree || p.Key == uint64(d.pid) {
		return 0, false // the machine's first process stands for the host
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return 0, false
	}
	own := d.nodes.Find(p.Resolved)
	for _, r := range p.Shared {
		d.ruleFailed(p.Resolved, d.joinRule(p.Resolved, own, r))
	}
	var around []desired.Rules
	for _, n := range d.treesAround(p.Resolved, own) {
		around = append(around, n.Ruled)
	}
	next := node{res: p.Resolved, since: time.Now()}
	if own != nil {
		next = *own
	}
	next.Ruled = p.Own(next.Ruled, around)
	if p.UsersMatch && !next.Ruled.Owners[enforce.OwnerUser].Empty() {
		next.setUser(p.UID)
	}
	switch {
	case own != nil:
		d.changeRuled(own, &next)
		return own.id, !next.empty()
	case next.empty():
		return 0, false
	}
	n, err := d.limitMatched(&next, p)
	d.ruleFailed(p.Resolved, err)
	if n == nil {
		return 0, false
	}
	d.tellSet(nil, n, observe.ByRule)
	d.log.Info("limit set by a rule", "subject", p.Subject.String(), "program", p.Program, "node", n.id)
	return n.id, true
}

// limitMatched makes the node of a process that rules match. Where there are too many such nodes, the administrator's
// rules hold for these processes together, and the node is nil. The caller holds d.mu.
func (d *Daemon) limitMatched(next *node, p rulefiles.Process) (*node, error) {
	err := d.quotaOfRuled(next)
	if err == nil {
		return d.commit(nil, next)
	}
	for _, r := range p.Instead {
		err = errors.Join(err, d.joinRule(p.Resolved, nil, r))
	}
	return nil, err
}

// changeRuled brings the requests of rules for a node into force.
func (d *Daemon) changeRuled(n, next *node) {
	if n.Ruled.Same(next.Ruled) {
		return
	}
	err := d.settle(n, next, observe.ByRule)
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
// tree it makes a node of its own there, so that a process cannot leave that tree by a rule. The caller holds d.mu.
func (d *Daemon) joinRule(res identity.Resolved, own *node, r rulefiles.Shared) error {
	outer := uint32(0)
	for i, n := range d.treesAround(res, own) {
		if n.Ruled.Has(r.Key) {
			return nil
		}
		if i == 0 {
			outer = n.id
		}
	}
	uid := uint32(0)
	if r.Owner == enforce.OwnerUser {
		uid = res.UID
	}
	var shared *node
	for n := range d.nodes.All() {
		if n.Ruled.Shared == r.Key && n.Ruled.Outer == outer && n.res.UID == uid {
			shared = n
		}
	}
	isNew := shared == nil
	next := node{res: r.Subject(outer, uid), since: time.Now(), Wanted: plan.Wanted{Ruled: desired.Rules{Shared: r.Key, Outer: outer}}}
	if isNew {
		if err := d.quota(auth.Actor{UID: uid}, true); err != nil {
			return err
		}
		next.Ruled.Owners[r.Owner] = r.Request
		if r.Owner == enforce.OwnerUser {
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
		d.tellSet(nil, shared, observe.ByRule)
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
		if n.Ruled.Shared != "" && n.Ruled.Outer == gone.id {
			n.Ruled.Outer = gone.Ruled.Outer
			d.file.Outdate()
			moved = append(moved, n)
		}
	}
	return moved
}

// ruleWarnings say which rules stay when their owner lifts a limit by a command.
func ruleWarnings(r desired.Rules, owner enforce.Owner) (list []string) {
	for _, from := range r.Owners[owner].Rules {
		list = append(list, fmt.Sprintf("the limit of %s stays: change it there", from))
	}
	return list
}
