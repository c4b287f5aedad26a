package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/rules"
)

// part is the destination that a request names, and the subject that the traffic belongs to.
type part struct {
	subject  api.Subject // in its canonical form
	selector destination.Selector
	under    identity.Resolved // kind host = everybody's traffic
	missing  error             // error if there is no such process, user or cgroup
}

func (p part) everybody() bool { return p.under.Kind == enforce.KindHost }

// lasting returns a subject whose text stays the same. For a user whose name is not in the files it is the number,
// since the name is known only after a look-up.
func (d *Daemon) lasting(r identity.Resolved) api.Subject {
	if r.Kind == enforce.KindUser && !d.resolver.Accounts().InFiles(r.Subject.ID) {
		return api.Subject{Kind: api.KindUser, ID: strconv.FormatUint(r.Key, 10)}
	}
	return r.Subject
}

// partOf parses a subject of the kind "to" in a request of an actor.
func (d *Daemon) partOf(ctx context.Context, by auth.Actor, act auth.Action, s api.Subject, w api.Wish) (p part, err error) {
	selector, under, err := destination.Parse(s.ID)
	if err != nil {
		return p, destination.Refused("%v", err)
	}
	if under == (api.Subject{}) {
		under = identity.Host().Subject
		if !by.Root() {
			under = identity.User(by.UID).Subject
		}
	}
	switch under.Kind {
	case api.KindLink, api.KindGroup, api.KindRule, api.KindTo:
		return p, destination.Refused("%s: a part of the traffic is of the host, or of a process, user, cgroup, unit or container", under)
	}
	if err := nobodys(by, act, under, w); err != nil {
		return p, err
	}
	p.selector = selector
	p.under, err = d.resolver.Resolve(ctx, under)
	if identity.IsNotFound(err) {
		p.missing = err
		p.under = identity.Resolved{Subject: d.resolver.Canonical(under)}
	} else if err != nil {
		return p, err
	}
	p.subject = selector.Subject(d.lasting(p.under))
	if p.everybody() {
		p.subject = selector.Subject(api.Subject{})
	}
	if p.missing == nil {
		return p, auth.Check(by, act, target(nil, p.under, p.subject, w))
	}
	return p, nil
}

// toward finds the node of an owner for a destination. The caller holds d.mu.
func (d *Daemon) toward(s api.Subject, owner enforce.Owner, uid uint32) *node {
	for _, n := range d.nodes.WithSubject(s) {
		if n.to != nil && n.owner() == owner && (owner == enforce.OwnerAdmin || n.userUID == uid) {
			return n
		}
	}
	return nil
}

// checkToward refuses settings that a destination cannot have.
func checkToward(req api.SetRequest) error {
	switch {
	case req.Scope:
		return destination.Refused("a part of the traffic has no scope: name the cgroup, or leave --scope out")
	case limit.WholeOnly(req.Wish):
		return destination.Refused("guarantees, reservations, weights and marks have no meaning for a part of the traffic: give rates")
	}
	return nil
}

// setToward stores one owner's requested limit for a destination. The parameter met says that no owner has named the
// destination: it is an address to which a program has sent.
func (d *Daemon) setToward(ctx context.Context, by auth.Actor, req api.SetRequest, met bool) (api.SetResponse, error) {
	answer := api.SetResponse{Version: api.Version}
	if err := checkToward(req); err != nil {
		return answer, err
	}
	p, err := d.partOf(ctx, by, auth.Set, req.Subject, req.Wish)
	if err == nil {
		err = p.missing
	}
	if err != nil {
		return answer, err
	}
	if len(req.Prefixes) > 0 && p.selector.List == "" {
		return answer, destination.Refused("prefixes come with a subject that has a file: to:file:PATH")
	}
	list, err := readPrefixes(req.Prefixes)
	if err != nil {
		return answer, err
	}
	names, err := d.newNames(ctx, p)
	if err != nil {
		return answer, err
	}
	began := time.Now()
	lifted := false
	defer func() { d.drain(lifted) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return answer, leaving()
	}
	if !d.bindDestinations() {
		return answer, &api.Error{
			Code: api.CodeConflict, Message: "the files of rules are wrong, and what they said before about destinations stands until they are read",
			Hint: "netnice rules check; netnice rules reload",
		}
	}
	owner := by.Owner()
	n := d.toward(p.subject, owner, by.UID)
	var before *node
	next := d.newToward(by, p)
	if n != nil {
		was := *n
		before, next = &was, *n
	}
	had, was := *next.place(owner, req), next.timed[owner]
	want := had.Merge(req.Wish)
	if want.Empty() && had.Empty() && was == (desired.Timed{}) {
		if !limit.LiftsOnly(req.Wish) {
			return answer, destination.Refused("%s has no limit of yours to which burst, loopback, the input meter or persist could apply: give a rate too", p.subject)
		}
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("no limit of yours stands on %s", p.subject))
		return answer, nil
	}
	if err := d.checkPersist(req, p.under, nil); err != nil {
		return answer, err
	}
	*next.place(owner, req) = want
	next.timeFrom(owner, req)
	if n == nil {
		for name, f := range names {
			d.setName(name, f) // otherwise the name is known to no node
		}
		next.to.learn(d.names)
		next.to.met = met
		if err := d.quota(by, true); err != nil {
			return answer, err
		}
	}
	undo, err := d.takeList(&next, list)
	if err != nil {
		return answer, err
	}
	stored := false
	defer func() {
		if !stored {
			undo()
		}
	}()
	if n == nil || len(list) > 0 {
		if err := d.roomToward(&next, p); err != nil {
			return answer, err
		}
	}
	answer.Changed = n == nil || want != had || next.timed[owner] != was || len(list) > 0
	answer.Warnings = append(answer.Warnings, d.warnings(by, req, nil, &next, want)...)
	if !req.DryRun && answer.Changed {
		wasMet := next.to.met
		if !next.empty() {
			next.to.met = wasMet && met
			if len(list) > 0 {
				d.keepList(next.listKey(), list)
			}
		}
		switch {
		case next.empty():
			err = d.liftToward(n)
			lifted = err == nil
		case n != nil && len(list) > 0:
			_, err = d.commit(n, &next)
			if d.outdateDestinations(); err == nil {
				err = d.bringDestinations()
			}
		case n != nil:
			_, err = d.commit(n, &next)
		default:
			n, err = d.addToward(&next, p)
		}
		if err != nil {
			next.to.met = wasMet
			d.touchID(next.id)
			return api.SetResponse{}, kernelError(p.subject, err)
		}
		if stored = true; !next.empty() {
			next = *n
		}
		if len(list) > 0 {
			answer.LoadedPrefixes, answer.LoadNS = len(list), uint64(time.Since(began))
		}
		answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.file.Path(), next.empty())...)
		if len(list) > 0 {
			answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.listFile(next.listKey()), false)...)
		}
		d.wakeEach()
		d.tellSet(before, next.ifAny(), identity.OwnerName(by.Owner(), by.UID))
		d.log.Info("limit set", "subject", p.subject.String(), "by", by.UID, "node", next.id, "up", want.Up, "down", want.Down, "total", want.Total)
	}
	if !next.empty() {
		answer.Node = d.show(by, &next, d.lookAt(&next, req.DryRun))
	}
	return answer, nil
}

// newNames looks up the names in a destination that the daemon does not know yet.
func (d *Daemon) newNames(ctx context.Context, p part) (map[string]found, error) {
	var unknown []string
	d.mu.Lock()
	for _, name := range p.selector.Names {
		if len(d.names[name].addresses) == 0 {
			unknown = append(unknown, name)
		}
	}
	d.mu.Unlock()
	return d.learnNames(ctx, unknown)
}

// newToward returns the node for a destination, without a limit so far.
func (d *Daemon) newToward(by auth.Actor, p part) node {
	n := node{
		res:   identity.Resolved{Subject: p.subject, Kind: enforce.KindDestination, UID: p.under.UID, Name: p.under.Name},
		since: time.Now(), to: &toward{selector: p.selector},
	}
	book := enforce.BookAdmin
	if p.everybody() {
		n.res.Name = ""
	}
	if !by.Root() {
		book = by.UID
		n.setUser(by.UID)
	}
	n.res.Key = towardKey(book, p.subject, p.under)
	return n
}

// alone reports whether a node needs no node for the subject that it is under: a user's limits in the kernel apply to
// that user's own processes only.
func (p part) alone(n *node) bool {
	return p.everybody() || n.own() && p.under.Kind == enforce.KindUser && p.under.UID == n.userUID
}

// roomToward refuses a limit beyond the number that the kernel side can compare or hold. The caller holds d.mu.
func (d *Daemon) roomToward(n *node, p part) error {
	if !p.alone(n) && n.to.scope == nil {
		n.to.scope = &node{res: p.under} // the node under which it will be
		defer func() { n.to.scope = nil }()
	}
	extra := n
	if d.nodes.Get(n.id) != nil {
		extra = nil // it is among the nodes already
	}
	made, over := d.compileDestinations(extra)
	if prefix, ok := over[n.book()]; ok {
		return &api.Error{
			Code:    api.CodeConflict,
			Message: fmt.Sprintf("more than %d limits and rules would be for %v, each range of ports counted", enforce.MostDestinationRules, prefix),
			Hint:    "lift some first (netnice ls), or name smaller prefixes",
		}
	}
	own := 0
	for _, list := range made.prefixes {
		if list.Book == n.userUID && n.own() {
			own++
		}
	}
	if own > rules.MaxUserDestinations {
		return full("you name as many prefixes in", rules.MaxUserDestinations, "lift some first: netnice ls")
	}
	if len(made.prefixes) > enforce.MostDestinationPrefixes {
		return full("as many prefixes are named in", enforce.MostDestinationPrefixes, "lift some first: netnice ls")
	}
	return nil
}

// addToward brings a new node into force, under an existing node or one that it makes for that. An error changes
// nothing. The caller holds d.mu.
func (d *Daemon) addToward(next *node, p part) (*node, error) {
	var scope *node
	if !p.alone(next) {
		var err error
		if scope = d.nodes.Find(p.under); scope == nil {
			scope, err = d.commit(nil, &node{res: p.under, since: time.Now(), holds: 1})
		} else {
			scope.holds++
			d.touch(scope)
		}
		if err != nil {
			return nil, err
		}
	}
	next.to.scope = scope
	n, err := d.commit(nil, next)
	if err != nil {
		return nil, errors.Join(err, d.letGo(scope))
	}
	d.outdateDestinations()
	if err := d.bringDestinations(); err != nil {
		n.to.leaving = true
		d.outdateDestinations()
		return nil, errors.Join(err, d.bringDestinations(), d.drop(n), d.letGo(scope))
	}
	return n, nil
}
