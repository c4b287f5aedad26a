package rulefiles

import (
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/rules"
)

// Rules for a part of the traffic have nodes of their own: one for each process tree that a rule matches, or one for all
// trees. The node of the tree, which may have no limit, tells the kernel side whose connections the rule is for. All of
// this follows from the rules and the trees.

// Destinations holds the active rules for a part of the traffic. It is never changed.
type Destinations struct {
	Known    bool // all rules were read, those of users too; until then the limits in force stay
	Prefixes []enforce.DestinationPrefix
	rules    map[uint32]destined
	numbers  map[ruleKey]uint32
}

// destined is one of these rules.
type destined struct {
	ruleSet     uint32 // the user whose rule it is, or enforce.BookAdmin
	origin      rules.Origin
	connections []string // which part of the traffic it is for, as people read it
	everybody   bool     // it is for the traffic of all processes
	shared      bool     // all processes that it matches have one limit
	// request is the limit on that traffic. An empty one exempts the traffic from later rules.
	request desired.OwnerRules
}

// ruleKey identifies a rule among those of all owners.
type ruleKey struct {
	ruleSet uint32
	key     string
}

// owner returns the owner in whose name the rule limits.
func (r *destined) owner() enforce.Owner {
	if r.ruleSet == enforce.BookAdmin {
		return enforce.OwnerAdmin
	}
	return enforce.OwnerUser
}

// IsEmpty reports whether there is no such rule.
func (to *Destinations) IsEmpty() bool { return len(to.rules) == 0 }

// HasNumber reports whether a rule has this number.
func (to *Destinations) HasNumber(number uint32) bool {
	_, has := to.rules[number]
	return has
}

// destinations returns the rules that are active now. The caller holds s.mu.
func (s *Source) destinations(now time.Time) Destinations {
	// A file that was wrong from the start has no rules in force. A user with such a file loses the former rules,
	// because no other user should have to wait for the file.
	all := Destinations{Known: s.system.set != nil && s.read, rules: map[uint32]destined{}, numbers: map[ruleKey]uint32{}}
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

// number returns the number of a rule, which is the same for each source.
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
		if !to.HasNumber(n) && n&^enforce.RuleFlags != 0 {
			to.numbers[key] = n
			to.rules[n] = destined{
				ruleSet: ruleSet, origin: r.Origin(), connections: r.Connections(), everybody: r.Everybody(), shared: isShared(r),
				request: combine([]*rules.Rule{r}),
			}
			return n
		}
	}
}

// Tree is a process tree in force, and what rules request of it. Limits needs those only that a rule for a part of the
// traffic matches.
type Tree struct {
	identity.Resolved
	ID    uint32
	User  uint32 // owner of what a user's rules request
	Rules desired.Rules
}

// Limit is a node that limits a part of the traffic by a rule.
type Limit struct {
	identity.Resolved
	Number  uint32 // of the rule
	Owner   enforce.Owner
	User    uint32 // the user whose rule it is, if the owner is a user
	Request desired.OwnerRules
	Uses    []enforce.DestinationUse // where it holds; the node is missing
}

// Limits returns the nodes that the rules request, by the keys of their subjects. It also returns the places where rules
// match that exempt traffic instead of limiting it.
func (to *Destinations) Limits(trees iter.Seq[Tree]) (map[uint64]*Limit, []enforce.DestinationUse) {
	list := map[uint64]*Limit{}
	var free []enforce.DestinationUse
	add := func(number uint32, scope *Tree) {
		r := to.rules[number]
		use := enforce.DestinationUse{Rule: number}
		if scope != nil {
			use.Scope = scope.ID
		}
		if len(r.request.Rules) == 0 {
			free = append(free, use)
			return
		}
		key := uint64(number) << 32
		if r.shared {
			scope = nil
		} else {
			key |= uint64(use.Scope)
		}
		if list[key] == nil {
			list[key] = r.limit(number, key, scope)
		}
		list[key].Uses = append(list[key].Uses, use)
	}
	for _, number := range slices.Sorted(maps.Keys(to.rules)) {
		if to.rules[number].everybody {
			add(number, nil)
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
					add(number, &tree)
				}
			}
		}
	}
	return list, free
}

// limit returns the node of a rule; scope is the tree whose traffic it limits, nil = that of all trees.
func (r *destined) limit(number uint32, key uint64, scope *Tree) *Limit {
	l := &Limit{
		Resolved: identity.Resolved{
			Subject: api.Subject{Kind: api.KindRule, ID: r.origin.Name}, Kind: enforce.KindDestination, Key: key,
			UID: r.whoseTraffic(scope), Name: strings.Join(r.connections, ", "),
		},
		Number: number, Owner: r.owner(), Request: r.request,
	}
	if l.Owner == enforce.OwnerUser {
		l.User = r.ruleSet
	}
	switch {
	case scope != nil:
		l.Name += observe.OfWhom + scope.Subject.String()
	case l.Owner == enforce.OwnerUser:
		l.Name += observe.OfWhom + identity.User(r.ruleSet).Subject.String()
	}
	return l
}

// whoseTraffic returns the user who may see which connections a rule's node is for, because they are the user's own; 0
// = none.
func (r *destined) whoseTraffic(scope *Tree) uint32 {
	switch {
	case scope != nil && r.owner() == enforce.OwnerAdmin && r.origin.IsInByOwnName(scope.Rules.Owners[enforce.OwnerAdmin].To):
		return 0
	case scope != nil:
		return scope.UID
	case r.owner() == enforce.OwnerUser:
		return r.ruleSet
	}
	return 0
}
