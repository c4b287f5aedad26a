// Package destinations is the source of limits on a part of the traffic. Commands set some of them, and files of rules
// request others (package rulefiles). Each limit has a node of its own. The kernel side finds it by the peer's address
// and by a node on the socket's path: the node of the subject whose traffic it is. The subject itself may have no limit.
//
// The package has the requests about these limits. It decides which nodes of rules there are, and which node holds for
// which part of the traffic. It knows who has the nodes by an interface, Host.
package destinations

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/source/names"
	"github.com/netnice/netnice/internal/source/prefixlists"
	"github.com/netnice/netnice/internal/source/rulefiles"
)

// Node is the node of a command's limit on a part of the traffic, as the host has it.
type Node struct {
	identity.Resolved
	ID      uint32
	RuleSet uint32 // the rule set in which the kernel side looks for it: its owner's
	User    uint32 // the user who owns the limit of enforce.OwnerUser
	// UserName is that user's name. OnlyUser says that the administrator requests nothing of the node.
	UserName   string
	OnlyUser   bool
	IsLeaving  bool // the limit is about to be lifted
	Selector   destination.Selector
	List       prefixlists.Key         // the prefixes in its file; no list without a file
	Scope      uint32                  // the node that it is under, 0 = all traffic that the owner may limit
	Under      enforce.Kind            // the kind of the subject that it is under, 0 = none
	Names      map[string][]netip.Addr // the last addresses of its names
	IsObserved bool                    // no owner has named the destination: it is an address to which a program has sent
}

// NodeHost is the program that has the nodes.
type NodeHost interface {
	// Nodes iterates over the nodes of commands' limits on a part of the traffic, by id.
	Nodes(yield func(Node) bool)
	// Ruled iterates over the nodes of rules' limits on a part of the traffic: the key of the subject, and the id.
	Ruled(yield func(key uint64, id uint32) bool)
	// Trees iterates over the process trees in force that rules for a part of the traffic match.
	Trees(yield func(rulefiles.Tree) bool)
	// SetRuled brings a rule's limit into force. It sets the node with this id, or makes one if the id is 0. It returns
	// the node's id, or 0 if that failed.
	SetRuled(id uint32, is *rulefiles.Limit) uint32
	// LiftRuled lifts a limit that no rule requests any more.
	LiftRuled(id uint32)
	// IsDown reports whether everything was lifted for good.
	IsDown() bool
	// Complain logs a failure once while it lasts.
	Complain(error)
}

// Kernel is what an assignment needs from the kernel side; enforce.Kernel has it.
type Kernel interface {
	SetDestinations(enforce.Destinations) error
}

// AssignmentOptions are what an assignment needs.
type AssignmentOptions struct {
	Log    *slog.Logger
	Kernel Kernel
	Host   NodeHost
	Names  *names.Source
	Lists  *prefixlists.Lists
}

// Assignment says which node holds for which part of the traffic. It is brought into force as a whole. The caller of its
// methods holds the lock of the limits.
type Assignment struct {
	opts  AssignmentOptions
	rules rulefiles.Destinations
	// made holds what limits and rules name, as the kernel side takes it. It is up to date if isMade is true.
	made   plan.Destinations
	isMade bool
	// refused is why the kernel does not know which nodes hold for which part; nil = it does.
	refused error
}

// NewAssignment returns the assignment of a host without rules so far.
func NewAssignment(o AssignmentOptions) *Assignment { return &Assignment{opts: o} }

// Learn takes over the rules for a part of the traffic that are active now.
func (a *Assignment) Learn(rules rulefiles.Destinations) {
	a.rules = rules
	a.Outdate()
}

// Outdate has the prefixes compiled again: a limit, a list, or the addresses of a name have changed.
func (a *Assignment) Outdate() { a.isMade = false }

// IsBound reports whether the rules of files are known, beside which the limits of commands hold. With files that were
// wrong from the start, the nodes of former rules stay as they are.
func (a *Assignment) IsBound() bool {
	if a.rules.Known {
		return true
	}
	for range a.opts.Host.Ruled {
		return false
	}
	return true
}

// compile compiles the lists of all prefixes, with one more limit if extra is not nil.
func (a *Assignment) compile(extra *Node) plan.Destinations {
	return plan.DestinationsOf(func(yield func(plan.Part) bool) {
		for n := range a.limits {
			if !yield(a.part(&n)) {
				return
			}
		}
		if extra != nil {
			yield(a.part(extra))
		}
	}, plan.FileRules{Prefixes: a.rules.Prefixes, HasNumber: a.rules.HasNumber})
}

// limits iterates over the limits of commands, without those that are about to be lifted.
func (a *Assignment) limits(yield func(Node) bool) {
	for n := range a.opts.Host.Nodes {
		if !n.IsLeaving && !yield(n) {
			return
		}
	}
}

// locations iterates over the locations where the limits of commands hold.
func (a *Assignment) locations(yield func(plan.Place) bool) {
	for n := range a.limits {
		if !yield(n.location()) {
			return
		}
	}
}

func (n *Node) location() plan.Place { return plan.Place{Node: n.ID, Scope: n.Scope} }

// part returns the part of the traffic that a command's limit is for, with the present addresses and prefixes.
func (a *Assignment) part(n *Node) plan.Part {
	return plan.Part{
		Place: n.location(), RuleSet: n.RuleSet, Under: n.Under,
		Selector: n.Selector, Resolved: a.opts.Names.Resolved(n.Selector), Listed: a.opts.Lists.Of(n.List),
	}
}

// Follow is Assign for callers that do not need its error, which is logged.
func (a *Assignment) Follow() {
	if err := a.Assign(); err != nil {
		a.opts.Host.Complain(err)
	}
}

// AssignRules is Follow after rules were applied to a process; isDestined says that one of them is for a part of the
// traffic. Without any such rule there is nothing to do.
func (a *Assignment) AssignRules(isDestined bool) {
	if isDestined || !a.rules.IsEmpty() {
		a.Follow()
	}
}

// Assign brings the nodes of rules into force, and tells the kernel which node holds where. It makes new nodes before it
// lifts old ones.
func (a *Assignment) Assign() error {
	host := a.opts.Host
	if !a.IsBound() || host.IsDown() {
		return nil
	}
	if err := a.remake(); err != nil {
		return err
	}
	want, uses := a.rules.Limits(host.Trees)
	have, old := a.ruled(want)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		id := host.SetRuled(have[key], want[key])
		if id == 0 {
			continue
		}
		for _, use := range want[key].Uses {
			use.Node = id
			uses = append(uses, use)
		}
	}
	uses = append(uses, a.made.Uses(a.locations)...)
	err := a.opts.Kernel.SetDestinations(enforce.Destinations{Prefixes: a.made.Prefixes, Uses: uses})
	if a.refused = err; err != nil {
		return fmt.Errorf("limit by destinations: %w", err)
	}
	for _, id := range old {
		host.LiftRuled(id)
	}
	return nil
}

// remake compiles the prefixes if something was changed since.
func (a *Assignment) remake() error {
	if a.isMade {
		return nil
	}
	made := a.compile(nil)
	if len(made.Prefixes) > enforce.MostDestinationPrefixes {
		return fmt.Errorf("limits and rules name %d prefixes in all: there may be %d", len(made.Prefixes), enforce.MostDestinationPrefixes)
	}
	if ruleSets := slices.Sorted(maps.Keys(made.Over)); len(ruleSets) > 0 {
		a.opts.Host.Complain(fmt.Errorf("more than %d limits and rules are for %v: the last do not hold there", enforce.MostDestinationRules, made.Over[ruleSets[0]]))
	}
	a.made, a.isMade = made, true
	return nil
}

// ruled returns the nodes of rules by the keys of their subjects, and those that no rule requests any more.
func (a *Assignment) ruled(want map[uint64]*rulefiles.Limit) (have map[uint64]uint32, old []uint32) {
	have = map[uint64]uint32{}
	for key, id := range a.opts.Host.Ruled {
		if have[key] = id; want[key] == nil {
			old = append(old, id)
		}
	}
	return have, old
}

// AssignAgain tells the kernel again which nodes hold where, after it has lost some.
func (a *Assignment) AssignAgain() {
	if a.refused == nil {
		a.refused = errors.New("nodes for destinations were lost")
	}
	a.Retry()
}

// Retry tells the kernel again which nodes hold where, if it has refused that. The first refusal was logged.
func (a *Assignment) Retry() {
	was := a.refused
	if was == nil {
		return
	}
	err := a.Assign()
	switch now := a.refused; {
	case now == nil:
		a.opts.Log.Info("the kernel knows again which limits hold for which destination")
	case err != nil && now.Error() != was.Error():
		a.opts.Host.Complain(err)
	}
}
