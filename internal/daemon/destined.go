package daemon

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/source/rulefiles"
)

// Limits on destinations by rules are nodes. Which nodes there are follows from the rules and the trees
// (rulefiles.Destinations). They are brought into force as a whole, together with the limits of commands: toward.go.

// destinedTrees lists the process trees in the kernel that rules for a part of the traffic match. The caller holds d.mu,
// at each exec that rules match: a machine may have many trees, and few of these.
func (d *Daemon) destinedTrees(yield func(rulefiles.Tree) bool) {
	for _, n := range d.nodes.Sorted() {
		if n.applied && n.destined() && !yield(rulefiles.Tree{Resolved: n.res, ID: n.id, User: n.userUID, Rules: n.Ruled}) {
			return
		}
	}
}

// settleDestinations brings the nodes into force after rules were applied to a process, if some rules are for a
// destination, or some of these were.
func (d *Daemon) settleDestinations(some bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if some || !d.destined.IsEmpty() {
		d.followDestinations()
	}
}

// destined reports whether a rule for a destination matches the processes of a tree.
func (n *node) destined() bool {
	return n.res.Kind == enforce.KindTree && slices.ContainsFunc(n.Ruled.Owners[:], func(w desired.OwnerRules) bool { return len(w.To) > 0 })
}

// followDestinations is bringDestinations for callers that do not need its error, which it logs.
func (d *Daemon) followDestinations() {
	if err := d.bringDestinations(); err != nil {
		d.complain(err)
	}
}

// bringDestinations brings the nodes for destinations into force, with the scopes in which they apply. It makes new
// nodes before it removes old ones. The caller holds d.mu.
func (d *Daemon) bringDestinations() error {
	if !d.bindDestinations() || d.isDown {
		return nil
	}
	if !d.commanded.known {
		made := d.compileDestinations(nil)
		if len(made.Prefixes) > enforce.MostDestinationPrefixes {
			return fmt.Errorf("limits and rules name %d prefixes in all: there may be %d", len(made.Prefixes), enforce.MostDestinationPrefixes)
		}
		if books := slices.Sorted(maps.Keys(made.Over)); len(books) > 0 {
			d.complain(fmt.Errorf("more than %d limits and rules are for %v: the last do not hold there", enforce.MostDestinationRules, made.Over[books[0]]))
		}
		d.commanded = commanded{known: true, Destinations: made}
	}
	want, uses := d.destined.Limits(d.destinedTrees)
	var old []*node
	have := map[uint64]*node{}
	for _, n := range d.nodes.Sorted() {
		if n.res.Kind != enforce.KindDestination || n.to != nil {
			continue
		}
		if have[n.res.Key] = n; want[n.res.Key] == nil {
			old = append(old, n)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w := want[key]
		n := d.setDestined(have[key], w)
		if n == nil {
			continue
		}
		for _, use := range w.Uses {
			use.Node = n.id
			uses = append(uses, use)
		}
	}
	uses = append(uses, d.commanded.Uses(d.places)...)
	err := d.kernel.SetDestinations(enforce.Destinations{Prefixes: d.commanded.Prefixes, Uses: uses})
	if d.behind.destinations = err; err != nil {
		return fmt.Errorf("limit by destinations: %w", err)
	}
	for _, n := range old {
		before := *n
		if err := d.drop(n); err != nil {
			d.ruleFailed(n.res, err)
			continue
		}
		d.tellSet(&before, nil, observe.ByRule)
		d.log.Info("a rule's limit was changed", "subject", n.res.Subject.String(), "node", n.id, "lifted", true)
	}
	return nil
}

// setDestined makes a node, or gives it the rule's present rates. It returns nil if that fails.
func (d *Daemon) setDestined(n *node, w *rulefiles.Limit) *node {
	next := node{res: w.Resolved, since: time.Now()}
	if n != nil {
		if n.res.UID != w.UID {
			n.res.UID = w.UID
			d.nodes.Put(n)
			d.file.Outdate()
			d.touch(n)
		}
		next = *n
	}
	next.Ruled = desired.Rules{Destined: w.Number}
	next.Ruled.Owners[w.Owner] = w.Request
	if w.Owner == enforce.OwnerUser {
		next.setUser(w.User)
	}
	if n != nil {
		d.changeRuled(n, &next)
		return n
	}
	err := d.quota(auth.Actor{UID: w.User}, true)
	if err == nil {
		n, err = d.commit(nil, &next)
	}
	if err != nil {
		d.ruleFailed(next.res, err)
		return nil
	}
	d.tellSet(nil, n, observe.ByRule)
	d.log.Info("limit set by a rule", "subject", n.res.Subject.String(), "for", n.res.Name, "node", n.id)
	return n
}

// marks reports whether a node exists only to mark its processes: it tells the kernel side whose connections another
// node is for.
func (n *node) marks() bool {
	return (n.destined() || n.holds > 0) && len(n.limits()) == 0 && n.Holding().Weight() == limit.DefaultWeight
}
