package daemon

import (
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/rules"
)

// A limit on a part of the traffic tells whom somebody talks to. Everybody sees that such a limit
// stands, where, and its figures. Its destination is for administrators, for the user who has set it,
// and for the user whose traffic it limits. destinationIsFor decides that for all that leaves the daemon.

// anybody is a caller to whom nothing belongs: there is no such user.
func anybody() auth.Actor { return auth.Actor{UID: ^uint32(0)} }

// destinationIsFor reports whether somebody may see for which destination a node is. An administrator's
// limit on everybody's traffic names what the administrator has named, and everybody may see that; not
// an address that is followed because somebody has sent there.
func (n *node) destinationIsFor(by auth.Actor) bool {
	owner := n.userBound()
	switch {
	case n.res.Kind != enforce.KindDestination:
		return true
	case n.usersWish():
		owner = n.userUID
	case n.isEverybodys() && !n.isMet():
		return true
	}
	return auth.May(by, auth.SeePeers, auth.Target{Subject: n.res.Subject, Kind: n.res.Kind, UID: owner})
}

// userBound is the user whose traffic a limit on a part of it is on, 0 = it is not one user's.
func (n *node) userBound() uint32 {
	if n.to != nil && n.to.scope != nil && n.to.scope.scope != nil {
		return n.to.scope.scope.UID
	}
	return n.res.UID
}

// isEverybodys reports whether a limit on a part of the traffic is on that of all whom its owner may limit.
func (n *node) isEverybodys() bool {
	return n.to != nil && n.to.scope == nil || n.ruled.Destined&enforce.RuleEverybody != 0
}

// isMet reports whether nobody has named a node's address: something was sent there.
func (n *node) isMet() bool { return n.to != nil && (n.to.met || n.to.each != 0) }

// hidden is how a node is shown to whom its destination is not for: with whose traffic it limits.
func (n *node) hidden() (subject api.Subject, name string) {
	subject, name = n.res.Subject, n.res.Name
	if subject.Kind == api.KindTo {
		_, under, isUnder := strings.Cut(subject.ID, "@")
		if subject.ID = api.Hidden; isUnder {
			subject.ID += "@" + under
		}
		return subject, name
	}
	whose := strings.LastIndex(name, ofWhom) // no connection has that in its text
	if whose < 0 {
		return subject, api.Hidden
	}
	return subject, api.Hidden + name[whose:]
}

// viewer is who is shown nodes.
type viewer struct {
	by auth.Actor
	// within are nodes that hold for a process of theirs, if they ask about one: an
	// administrator's limit on a part of the traffic in one of these is on their traffic, too.
	within []*node
}

func (v viewer) sees(n *node) bool {
	return n.destinationIsFor(v.by) || !n.usersWish() && !n.isMet() && slices.ContainsFunc(v.within, n.isOpenTo)
}

// isOpenTo reports whether a node is for what the processes of a tree do, and their user may know for which
// destination: they may not have named a cgroup or a unit as the rule wants it, to learn that.
func (n *node) isOpenTo(tree *node) bool {
	return n.concerns(tree) && !slices.ContainsFunc(n.ruled.Owners[enforce.OwnerAdmin].Rules, func(o origin) bool { return tree.matchesByOwnName(o.Key) })
}

// addressIsFor reports whether somebody may see which address a path leads to that is followed.
func (a *adapted) addressIsFor(by auth.Actor) bool {
	return a.Area == "" || auth.May(by, auth.SeePeers, auth.Target{Subject: a.subject(), Kind: enforce.KindDestination})
}

// hideConnections takes out of a rule of the administrator's for which connections it is, unless it names who asks or
// nobody.
func hideConnections(by auth.Actor, r *rules.Rule, shown *api.Rule) {
	if !r.Destined() || r.MayHoldFor(by.UID) || auth.May(by, auth.SeePeers, auth.Target{Kind: enforce.KindDestination}) {
		return
	}
	const instead = "to " + api.Hidden
	shown.Conditions = slices.DeleteFunc(shown.Conditions, func(text string) bool { return slices.Contains(shown.Connections, text) })
	shown.Conditions, shown.Connections = append(shown.Conditions, instead), []string{instead}
}

// problemsFor is what is wrong in files of rules. A mistake may quote a destination, so of the
// administrator's files others are told where it is only.
func (b *book) problemsFor(by auth.Actor) []api.RuleProblem {
	switch {
	case b.hanging != "":
		return append(slices.Clone(b.problems), hangs(b.hanging))
	case b.owner != 0 || by.Root():
		return b.problems
	}
	list := slices.Clone(b.problems)
	for i := range list {
		list[i].Message, list[i].Remedy = "a mistake in the administrator's rules, which administrators are told", "sudo netnice rules check"
	}
	return list
}
