package rulefiles

import (
	"context"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/rules"
)

// matched holds the rules that match a process, by owner.
type matched [enforce.Owners]ownersMatch

// ownersMatch holds the rules in force for the process, and those for a part of its traffic.
type ownersMatch struct{ holding, destined []*rules.Rule }

func (m ownersMatch) all() []*rules.Rule { return slices.Concat(m.holding, m.destined) }

func (m ownersMatch) none() bool { return len(m.holding)+len(m.destined) == 0 }

func (m matched) none() bool { return m[enforce.OwnerAdmin].none() && m[enforce.OwnerUser].none() }

// match compares a process with the rules of the administrator and of its user. The caller holds s.mu.
func (s *Source) match(f rules.Facts, now time.Time) (m matched) {
	for owner, set := range s.sets(f.UID()) {
		if set == nil {
			continue
		}
		of := s.users[f.UID()]
		if enforce.Owner(owner) != enforce.OwnerUser || of == nil {
			m[owner].holding, m[owner].destined = set.Match(f, now)
			continue
		}
		began := time.Now()
		if !of.debt.may(began) {
			continue // their present requests stay
		}
		m[owner].holding, m[owner].destined = set.Match(f, now)
		of.debt.took += time.Since(began)
	}
	return m
}

// facts returns the facts of a process that rules match. The container is one of them only while some rule names one:
// engines' files may hang, and the caller holds s.mu.
func (s *Source) facts(p *running) *desired.Facts {
	if s.containers.Load() {
		p.Container()
	}
	return p.all()
}

// executed applies the rules to a process after an exec. If no rule matches the new program, the present limits of the
// process stay: a process cannot leave a limit by exec.
func (s *Source) executed(ctx context.Context, e enforce.Exec) {
	p, ok := readProcess(s.opts.Resolver, e.PID)
	if !ok {
		return
	}
	if s.containers.Load() {
		p.Container() // before the lock, as this reads files of container engines
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A directory's user who runs a program may have rules of their own. Their home has to be known for that.
	s.opts.Resolver.Accounts().Known(s.opts.Host.CountsAs(p.facts.User))
	m := s.match(p, s.opts.Now())
	if m.none() {
		return
	}
	res, err := s.opts.Resolver.Resolve(ctx, identity.PIDSubject(e.PID))
	if err != nil || e.StartBoottimeNS != 0 && !identity.SameStart(res.StartBoottimeNS, e.StartBoottimeNS) {
		return // it has ended
	}
	s.publishMatch(res, p.facts.Exe, m)
	process := s.process(res, s.facts(p), m, s.opts.Now())
	process.Exec = &e
	s.opts.Host.Apply(process)
}

// publishMatch publishes that rules match a process.
func (s *Source) publishMatch(res identity.Resolved, program string, m matched) {
	s.opts.Host.Publish([2]uint32{res.UID}, func() api.Event {
		e := api.Event{Type: api.EventRuleMatched, Subject: &res.Subject, Name: res.Name, By: observe.ByRule, PID: int(res.Key), Program: program}
		for _, list := range m {
			for _, r := range list.all() {
				e.Rules = append(e.Rules, *observe.ShownOrigin(r.Origin()))
			}
		}
		return e
	})
}

// applyToAll applies the rules to every process, parents first. Then it ends limits that no rule requests any more. New
// limits are in force before old ones go. It returns false, and ends none, if it cannot list the processes. The caller
// holds s.mu.
func (s *Source) applyToAll(now time.Time) (done bool) {
	s.opts.Host.Learn(now, s.system.set, s.destinations(now))
	looked := make(map[uint32]bool)
	if s.any() {
		processes, err := s.opts.Resolver.Processes()
		if err != nil {
			s.complain(err)
			return false
		}
		slices.SortFunc(processes, func(a, b identity.Ancestor) int {
			if a.StartBoottimeNS != b.StartBoottimeNS {
				return int(int64(a.StartBoottimeNS) - int64(b.StartBoottimeNS))
			}
			return a.PID - b.PID
		})
		for _, a := range processes {
			p, ok := readProcess(s.opts.Resolver, a.PID)
			if !ok {
				continue
			}
			m := s.match(p, now)
			if m.none() {
				continue
			}
			res, err := s.opts.Resolver.Resolve(context.Background(), identity.PIDSubject(a.PID))
			if err == nil && identity.SameStart(res.StartBoottimeNS, a.StartBoottimeNS) {
				if node, ok := s.opts.Host.Apply(s.process(res, s.facts(p), m, now)); ok {
					looked[node] = true
				}
			}
		}
	}
	s.opts.Host.Review(looked, func(uid uint32, before desired.Rules) desired.Rules { return s.review(uid, before, now) })
	return true
}

// review returns what rules now request of a node of this user, by the facts of the process when they matched.
func (s *Source) review(uid uint32, before desired.Rules, now time.Time) desired.Rules {
	if before.Shared != "" {
		return s.reviewShared(uid, before, now)
	}
	next := before
	for owner := range before.Owners {
		next.Owners[owner] = s.reviewOwner(before.Owners[owner], owner, now)
	}
	return next
}

// reviewOwner returns the present request of one owner's rules for a process's own node.
func (s *Source) reviewOwner(before desired.OwnerRules, owner int, now time.Time) desired.OwnerRules {
	if before.Facts == nil {
		return before
	}
	set := s.sets(before.Facts.User)[owner]
	if set == nil {
		return before // not known: unchanged
	}
	holding, destined := set.Match(*before.Facts, now)
	next := combineWith(before.Facts, without(holding, isShared), destined)
	next.Facts = before.Facts
	return next
}

// reviewShared returns the present request of the rule of a shared node.
func (s *Source) reviewShared(uid uint32, before desired.Rules, now time.Time) desired.Rules {
	next := before
	for owner, set := range s.sets(uid) {
		if set == nil || before.Owners[owner].Empty() {
			continue
		}
		next.Owners[owner] = desired.OwnerRules{}
		for _, r := range set.Rules() {
			if r.Key() == before.Shared && r.Active(now) {
				next.Owners[owner] = requested(r)
			}
		}
	}
	return next
}

// Process is a process that rules match, and what they request of it.
type Process struct {
	identity.Resolved
	Program string // the path of its program
	// Exec is the exec after which the rules are applied, nil if a look at all processes has found the process.
	Exec *enforce.Exec
	// IsDestined says that one of the rules is for a part of the traffic.
	IsDestined bool
	// UsersMatch says that rules of the process's user match. That user owns what these request.
	UsersMatch bool
	// Shared lists the rules with one limit for all processes that they match: the process becomes a member.
	Shared []Shared
	// Own returns what rules request of the process's own node, after it became a member of the nodes for Shared.
	// before is their present request, and around has those of the trees that the process is in, except its own.
	Own func(before desired.Rules, around []desired.Rules) desired.Rules
	// Instead lists the administrator's rules that hold for such processes together, as if each were shared, where the
	// process may have no node of its own, because there are too many.
	Instead []Shared
}

// process returns what matching rules request of a process. If none of an owner's rules matches, the former requests of
// that owner's rules stay: a user cannot leave the administrator's limit by a rule of their own. The caller holds s.mu,
// also when the host calls Own.
func (s *Source) process(res identity.Resolved, f *desired.Facts, m matched, now time.Time) Process {
	p := Process{
		Resolved: res, Program: f.Exe,
		IsDestined: len(m[enforce.OwnerAdmin].destined)+len(m[enforce.OwnerUser].destined) > 0,
		UsersMatch: !m[enforce.OwnerUser].none(),
	}
	for owner, list := range m {
		for _, r := range list.holding {
			if isShared(r) && limits(r) {
				p.Shared = append(p.Shared, shared(enforce.Owner(owner), r))
			}
		}
	}
	for _, r := range m[enforce.OwnerAdmin].all() {
		if r.Destined() || !isShared(r) && limits(r) {
			p.Instead = append(p.Instead, shared(enforce.OwnerAdmin, r))
		}
	}
	p.Own = func(before desired.Rules, around []desired.Rules) desired.Rules {
		next := before
		isAround := func(r *rules.Rule) bool {
			return slices.ContainsFunc(around, func(tree desired.Rules) bool { return tree.Has(r.Key()) })
		}
		for owner, list := range m {
			switch set := s.sets(res.UID)[owner]; {
			case list.none():
				next.Owners[owner] = s.reviewOwner(before.Owners[owner], owner, now)
			case set != nil:
				keep := without(list.holding, func(r *rules.Rule) bool { return isShared(r) || isAround(r) })
				next.Owners[owner] = combineWith(f, keep, without(list.destined, isAround))
				next.Owners[owner].Facts = f
			}
		}
		return next
	}
	return p
}
