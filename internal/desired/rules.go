package desired

import (
	"slices"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/rules"
)

// Rules is the request of rules for a node, by the owner of the rules. The zero value requests nothing. It is never
// changed in place, as copies share it.
type Rules struct {
	Owners [enforce.Owners]OwnerRules `json:"owners"`
	// Facts exists only for files of version 3, in which all owners had the same facts.
	Facts *Facts `json:"facts,omitempty"`
	// Shared is the key of a rule that has one limit for all matching processes, "" for a process's own node. Outer is
	// the tree around the node.
	Shared string `json:"shared,omitempty"`
	Outer  uint32 `json:"outer,omitempty"`
	// Destined is the number of the rule for a destination whose node this is; 0 for other nodes.
	Destined uint32 `json:"destined,omitempty"`
}

// OwnerRules is the request of one owner's rules.
type OwnerRules struct {
	Wish  limit.Limit                      `json:"wish"`
	From  [enforce.Directions]rules.Origin `json:"from"` // origin of each rate
	Rules []rules.Origin                   `json:"rules,omitempty"`
	// To holds the rules for a destination that match the process. Their limits are on nodes of their own: see
	// internal/source/rulefiles/destinations.go.
	To []rules.Origin `json:"to,omitempty"`
	// Facts holds the facts of the process when it matched the owner's rules. A program that another owner's rules
	// match must not change the requests of this owner's rules.
	Facts *Facts `json:"facts,omitempty"`
}

// Empty reports whether no rule requests anything.
func (r Rules) Empty() bool {
	for _, o := range r.Owners {
		if !o.Empty() {
			return false
		}
	}
	return true
}

// Empty reports whether no rule of the owner requests anything.
func (w OwnerRules) Empty() bool { return len(w.Rules)+len(w.To) == 0 }

// Has reports whether the node has a limit by this rule.
func (r Rules) Has(key string) bool {
	for _, o := range r.Owners {
		is := func(from rules.Origin) bool { return from.Key == key }
		if slices.ContainsFunc(o.Rules, is) || slices.ContainsFunc(o.To, is) {
			return true
		}
	}
	return false
}

// Same reports whether the rules and their requests are the same.
func (r Rules) Same(o Rules) bool {
	for owner, a := range r.Owners {
		b := o.Owners[owner]
		if a.Wish != b.Wish || a.From != b.From || !slices.Equal(a.Rules, b.Rules) || !slices.Equal(a.To, b.To) {
			return false
		}
	}
	return true
}

// Facts holds the properties of one process that rules compare. They are kept with a node, since the process may end
// before its children, or become another program.
type Facts struct {
	Exe, Comm             string
	User                  uint32
	CommandLine           string
	Group                 string
	SystemGroup           string `json:",omitempty"` // the part of Group that no user has named; since version 11
	ParentExe, ParentComm string
	In                    rules.Container `json:",omitzero"`
}

var _ rules.Facts = Facts{}

// MayKnow reports whether the process's user may see the destination of a matching administrator's rule. The user may
// not if the match comes from a name that the user may have chosen for that.
func (f Facts) MayKnow(r *rules.Rule) bool { return r.MayHoldFor(f.User) || r.HoldsIn(f.SystemGroup) }

// Program implements rules.Facts.
func (f Facts) Program() rules.Program { return rules.Program{Path: f.Exe, Comm: f.Comm} }

// Parent implements rules.Facts.
func (f Facts) Parent() rules.Program { return rules.Program{Path: f.ParentExe, Comm: f.ParentComm} }

// UID implements rules.Facts.
func (f Facts) UID() uint32 { return f.User }

// Command implements rules.Facts.
func (f Facts) Command() string { return f.CommandLine }

// Cgroup implements rules.Facts.
func (f Facts) Cgroup() string { return f.Group }

// Container implements rules.Facts.
func (f Facts) Container() rules.Container { return f.In }
