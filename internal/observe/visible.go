package daemon

import (
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/rules"
)

// A limit on a destination shows with whom a user communicates. Everybody sees that such a limit exists, its
// subject, and its figures. Its destination is visible to administrators, to the user that has set it, and to the user
// whose traffic it limits. destinationIsFor decides that for all output of the daemon.

// anybody is a caller that owns nothing: there is no such user.
func anybody() auth.Actor { return auth.Actor{UID: ^uint32(0)} }

// destinationIsFor reports whether an actor may see the destination of a node. An administrator's limit on everybody's
// traffic names a destination that the administrator chose, and everybody may see that. An address that is followed
// because a program has sent there is not visible to everybody.
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

// userBound returns the user whose traffic the node limits in part, 0 = no single user's.
func (n *node) userBound() uint32 {
	if n.to != nil && n.to.scope != nil && n.to.scope.scope != nil {
		return n.to.scope.scope.UID
	}
	return n.res.UID
}

// isEverybodys reports whether a destination limit is on the traffic of all users whom its owner may limit.
func (n *node) isEverybodys() bool {
	return n.to != nil && n.to.scope == nil || n.ruled.Destined&enforce.RuleEverybody != 0
}

// isMet reports whether no owner has named the node's address: a program sent there.
func (n *node) isMet() bool { return n.to != nil && (n.to.met || n.to.each != 0) }

// hidden returns the subject and name of a node as callers see it who may not see its destination. They still show the
// subject whose traffic the node limits.
func (n *node) hidden() (subject api.Subject, name string) {
	subject, name = n.res.Subject, n.res.Name
	if subject.Kind == api.KindTo {
		_, under, isUnder := strings.Cut(subject.ID, "@")
		if subject.ID = api.Hidden; isUnder {
			subject.ID += "@" + under
		}
		return subject, name
	}
	whose := strings.LastIndex(name, ofWhom) // no text of a connection contains that
	if whose < 0 {
		return subject, api.Hidden
	}
	return subject, api.Hidden + name[whose:]
}

// viewer is the actor to whom nodes are shown.
type viewer struct {
	by auth.Actor
	// within holds nodes of a process that the actor asks about and owns. An administrator's limit on a destination
	// under one of these limits the actor's traffic, too.
	within []*node
}

func (v viewer) sees(n *node) bool {
	return n.destinationIsFor(v.by) || !n.usersWish() && !n.isMet() && slices.ContainsFunc(v.within, n.isOpenTo)
}

// isOpenTo reports whether a node applies to the processes of a tree, and their user may see its destination. The user
// may not if the rule matches by a cgroup or a unit that the user may have named: the match would reveal the
// destination.
func (n *node) isOpenTo(tree *node) bool {
	return n.concerns(tree) && !slices.ContainsFunc(n.ruled.Owners[enforce.OwnerAdmin].Rules, func(o rules.Origin) bool { return tree.matchesByOwnName(o.Key) })
}

// hideConnections removes the destination from an administrator's rule, unless the rule names the caller or no user.
func hideConnections(by auth.Actor, r *rules.Rule, shown *api.Rule) {
	if !r.Destined() || r.MayHoldFor(by.UID) || auth.May(by, auth.SeePeers, auth.Target{Kind: enforce.KindDestination}) {
		return
	}
	const instead = "to " + api.Hidden
	shown.Conditions = slices.DeleteFunc(shown.Conditions, func(text string) bool { return slices.Contains(shown.Connections, text) })
	shown.Conditions, shown.Connections = append(shown.Conditions, instead), []string{instead}
}

// problemsFor returns the errors in files of rules. An error may quote a destination, and therefore callers other than
// root see only the place of an error in the administrator's files.
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
