package destinations

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
)

// Part is the part of the traffic that a request names, and the subject that the traffic belongs to.
type Part struct {
	Subject  api.Subject // in its canonical form
	Selector destination.Selector
	Under    identity.Resolved // kind host = everybody's traffic
	missing  error             // error if there is no such process, user or cgroup
}

func (p *Part) isEverybodys() bool { return p.Under.Kind == enforce.KindHost }

// isAlone reports whether a node needs no node for the subject that it is under: a user's limits in the kernel apply to
// that user's own processes only.
func (p *Part) isAlone(n Node) bool {
	return p.isEverybodys() || n.OnlyUser && p.Under.Kind == enforce.KindUser && p.Under.UID == n.User
}

// Fresh returns the node of an owner's limit that is to be made.
func (p *Part) Fresh(by auth.Actor) Node {
	n := Node{
		Resolved: identity.Resolved{Subject: p.Subject, Kind: enforce.KindDestination, UID: p.Under.UID, Name: p.Under.Name},
		RuleSet:  enforce.BookAdmin, Selector: p.Selector,
	}
	if p.isEverybodys() {
		n.Name = ""
	}
	if !by.Root() {
		n.RuleSet, n.User, n.OnlyUser = by.UID, by.UID, true
	}
	n.Key = keyOf(n.RuleSet, p.Subject, p.Under)
	return n
}

// keyOf identifies the node among all nodes, for this daemon and the next.
func keyOf(ruleSet uint32, s api.Subject, under identity.Resolved) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", ruleSet, s.ID, under.StartBoottimeNS)
	return h.Sum64()
}

// partOf parses a subject of the kind "to" in a request of an actor.
func (s *Source[T]) partOf(ctx context.Context, by auth.Actor, act auth.Action, subject api.Subject, w api.Wish) (p Part, err error) {
	selector, under, err := destination.Parse(subject.ID)
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
	if err := request.CheckOwned(by, act, under, w); err != nil {
		return p, err
	}
	p.Selector = selector
	p.Under, err = s.opts.Resolver.Resolve(ctx, under)
	if identity.IsNotFound(err) {
		p.missing = err
		p.Under = identity.Resolved{Subject: s.opts.Resolver.Canonical(under)}
	} else if err != nil {
		return p, err
	}
	p.Subject = selector.Subject(s.lasting(p.Under))
	if p.isEverybodys() {
		p.Subject = selector.Subject(api.Subject{})
	}
	if p.missing == nil {
		return p, auth.Check(by, act, auth.Target{Subject: p.Subject, Kind: p.Under.Kind, UID: p.Under.UID, Wish: w})
	}
	return p, nil
}

// lasting returns a subject whose text stays the same. For a user whose name is not in the files it is the number,
// since the name is known only after a look-up.
func (s *Source[T]) lasting(r identity.Resolved) api.Subject {
	if r.Kind == enforce.KindUser && !s.opts.Resolver.Accounts().InFiles(r.Subject.ID) {
		return api.Subject{Kind: api.KindUser, ID: strconv.FormatUint(r.Key, 10)}
	}
	return r.Subject
}
