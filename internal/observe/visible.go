package observe

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
// whose traffic it limits. DestinationIsFor decides that for all output.

// OfWhom is the text between a rule's connections and their owner, in the name of the rule's node.
const OfWhom = " of "

// anybody is a caller that owns nothing: there is no such user.
func anybody() auth.Actor { return auth.Actor{UID: ^uint32(0)} }

// DestinationIsFor reports whether an actor may see the destination of a node. An administrator's limit on everybody's
// traffic names a destination that the administrator chose, and everybody may see that. An address that is followed
// because a program has sent there is not visible to everybody.
func (n *Node) DestinationIsFor(by auth.Actor) bool {
	owner := n.Users.Bound
	switch {
	case n.Kind != enforce.KindDestination:
		return true
	case n.Users.HasOwner:
		owner = n.Users.Owner
	case n.isEverybodys() && !n.isMet():
		return true
	}
	return auth.May(by, auth.SeePeers, auth.Target{Subject: n.Subject, Kind: n.Kind, UID: owner})
}

// isEverybodys reports whether a destination limit is on the traffic of all users whom its owner may limit.
func (n *Node) isEverybodys() bool {
	return n.To != nil && n.To.OfAll || n.Rules.Destined&enforce.RuleEverybody != 0
}

// isMet reports whether no owner has named the node's address: a program sent there.
func (n *Node) isMet() bool { return n.To != nil && n.To.IsMet }

// hidden returns the subject and name of a node as callers see it who may not see its destination. They still show the
// subject whose traffic the node limits.
func (n *Node) hidden() (subject api.Subject, name string) {
	subject, name = n.Subject, n.Name
	if subject.Kind == api.KindTo {
		_, under, isUnder := strings.Cut(subject.ID, "@")
		if subject.ID = api.Hidden; isUnder {
			subject.ID += "@" + under
		}
		return subject, name
	}
	whose := strings.LastIndex(name, OfWhom) // no text of a connection contains that
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
	within []*Node
}

func (v viewer) sees(n *Node) bool {
	return n.DestinationIsFor(v.by) || !n.Users.HasOwner && !n.isMet() && slices.ContainsFunc(v.within, n.IsOpenTo)
}

// IsOpenTo reports whether a node applies to the processes of a tree, and their user may see its destination. The user
// may not if the rule matches by a cgroup or a unit that the user may have named: the match would reveal the
// destination.
func (n *Node) IsOpenTo(tree *Node) bool {
	return n.Concerns(tree) && !slices.ContainsFunc(n.Rules.Limiting[enforce.OwnerAdmin], func(o rules.Origin) bool {
		return o.IsInByOwnName(tree.Rules.Meant[enforce.OwnerAdmin])
	})
}

// HideConnections removes the destination from an administrator's rule, unless the rule names the caller or no user.
func HideConnections(by auth.Actor, r *rules.Rule, shown *api.Rule) {
	if !r.Destined() || r.MayHoldFor(by.UID) || auth.May(by, auth.SeePeers, auth.Target{Kind: enforce.KindDestination}) {
		return
	}
	const instead = "to " + api.Hidden
	shown.Conditions = slices.DeleteFunc(shown.Conditions, func(text string) bool { return slices.Contains(shown.Connections, text) })
	shown.Conditions, shown.Connections = append(shown.Conditions, instead), []string{instead}
}

// ShownProblems returns the errors in files of rules, of the administrator (owner 0) or of a user. An error may quote a
// destination, and therefore callers other than root see only the place of an error in the administrator's files.
func ShownProblems(by auth.Actor, owner uint32, problems []api.RuleProblem) []api.RuleProblem {
	if owner != 0 || by.Root() {
		return problems
	}
	list := slices.Clone(problems)
	for i := range list {
		list[i].Message, list[i].Remedy = "a mistake in the administrator's rules, which administrators are told", "sudo netnice rules check"
	}
	return list
}

// ShownOrigin returns the rule that a limit comes from for clients, nil if it comes from none.
func ShownOrigin(o rules.Origin) *api.RuleOrigin {
	if o.Key == "" {
		return nil
	}
	return &api.RuleOrigin{Name: o.Name, File: o.File, Line: o.Line}
}
