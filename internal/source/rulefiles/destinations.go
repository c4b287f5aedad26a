package rulefiles

import (
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/rules"
)

// Rules for a part of the traffic have nodes of their own: one for each process tree that a rule matches, or one for all
// trees. The node of the tree, which may have no limit, tells the kernel side whose connections the rule is for. All of
// this follows from the rules and the trees.

// Destinations holds the active rules for a part of the traffic. It is never changed.
type Destinations struct {
	Known    bool // all rules were read, those of users too; until then the limits in force stay
	Rules    map[uint32]Destination
	Prefixes []enforce.DestinationPrefix
	numbers  map[ruleKey]uint32
}

// Destination is one of these rules.
type Destination struct {
	RuleSet     uint32 // the user whose rule it is, or enforce.BookAdmin
	Origin      rules.Origin
	Connections []string // which part of the traffic it is for, as people read it
	Everybody   bool     // it is for the traffic of all processes
	Shared      bool     // all processes that it matches have one limit
	// Request is the limit on that traffic. An empty one exempts the traffic from later rules.
	Request desired.OwnerRules
}

// ruleKey identifies a rule among those of all owners.
type ruleKey struct {
	ruleSet uint32
	key     string
}

// Owner returns the owner in whose name the rule limits.
func (r Destination) Owner() enforce.Owner {
	if r.RuleSet == enforce.BookAdmin {
		return enforce.OwnerAdmin
	}
	return enforce.OwnerUser
}

// destinations returns the rules that are active now. The caller holds s.mu.
func (s *Source) destinations(now time.Time) Destinations {
	// A file that was wrong from the start has no rules in force. A user with such a file loses the former rules,
	// because no other user should have to wait for the file.
	all := Destinations{Known: s.system.set != nil && s.read, Rules: map[uint32]Destination{}, numbers: map[ruleKey]uint32{}}
	add := func(ruleSet uint32, set *rules.Set) {
		if set == nil {
			return
		}
		prefixes := set.Destinations(now)
		if len(all.Prefixes)+len(prefixes) > enforce.MostDestinationPrefixes {
			s.complain(fmt.Errorf("rules name more than %d prefixes in all: those of uid %d do not hold", enforce.MostDestinationPrefixes, ruleSet))
			return
		}
		for _, p := range prefixes {
			to := enforce.DestinationPrefix{Book: ruleSet, Prefix: p.Prefix}
			for _, r := range p.Rules {
				to.Rules = append(to.Rules, enforce.DestinationRule{Rule: all.number(ruleSet, r.Rule), PortFrom: r.From, PortTo: r.To})
			}
			all.Prefixes = append(all.Prefixes, to)
		}
	}
	add(enforce.BookAdmin, s.system.set)
	for _, uid := range slices.Sorted(maps.Keys(s.users)) {
		add(uid, s.users[uid].set)
	}
	return all
}

// number returns the number of a rule, which is the same in each daemon.
func (to *Destinations) number(ruleSet uint32, r *rules.Rule) uint32 {
	key := ruleKey{ruleSet, r.Key()}
	if n, ok := to.numbers[key]; ok {
		return n
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s", ruleSet, key.key)
	for n := h.Sum32(); ; n++ {
		n &^= enforce.RuleFlags
		if r.Everybody() {
			n |= enforce.RuleEverybody
		}
		n |= enforce.ProtocolFlag(string(r.Protocol()))
		if _, used := to.Rules[n]; !used && n&^enforce.RuleFlags != 0 {
			to.numbers[key] = n
			to.Rules[n] = Destination{
				RuleSet: ruleSet, Origin: r.Origin(), Connections: r.Connections(), Everybody: r.Everybody(), Shared: isShared(r),
				Request: combine([]*rules.Rule{r}),
			}
			return n
		}
	}
}

// Tree is a process tree in force, and what rules request of it.
type Tree struct {
	ID    uint32
	User  uint32 // owner of what a user's rules request
	Rules desired.Rules
}

// Limit is a node that limits a part of the traffic by a rule.
type Limit struct {
	Rule  uint32
	Scope uint32 // the tree whose traffic it limits, 0 = that of all trees
	Uses  []enforce.DestinationUse
}

// Limits returns the nodes that the rules request, by their subjects, with the places where they hold; their uses still
// lack the node. It also returns the places where rules match that exempt traffic instead of limiting it.
func (to *Destinations) Limits(trees iter.Seq[Tree]) (map[uint64]*Limit, []enforce.DestinationUse) {
	list := map[uint64]*Limit{}
	var free []enforce.DestinationUse
	add := func(number, scope uint32) {
		r := to.Rules[number]
		use := enforce.DestinationUse{Rule: number, Scope: scope}
		if len(r.Request.Rules) == 0 {
			free = append(free, use)
			return
		}
		if r.Shared {
			scope = 0
		}
		key := uint64(number)<<32 | uint64(scope)
		if list[key] == nil {
			list[key] = &Limit{Rule: number, Scope: scope}
		}
		list[key].Uses = append(list[key].Uses, use)
	}
	for _, number := range slices.Sorted(maps.Keys(to.Rules)) {
		if to.Rules[number].Everybody {
			add(number, 0)
		}
	}
	for tree := range trees {
		for owner, w := range tree.Rules.Owners {
			ruleSet := enforce.BookAdmin
			if enforce.Owner(owner) == enforce.OwnerUser {
				ruleSet = tree.User
			}
			if w.Facts != nil && ruleSet != enforce.BookAdmin {
				ruleSet = w.Facts.User
			}
			for _, from := range w.To {
				if number, ok := to.numbers[ruleKey{ruleSet, from.Key}]; ok {
					add(number, tree.ID)
				}
			}
		}
	}
	return list, free
}
