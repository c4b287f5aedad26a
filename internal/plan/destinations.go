package plan

import (
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
)

// Place says where the node of a limit on a part of the traffic holds.
type Place struct {
	Node  uint32
	Scope uint32 // the node that it is under, 0 = all traffic that the owner may limit
}

// Part is a command's limit on a part of the traffic.
type Part struct {
	Place
	RuleSet  uint32               // the rule set in which the kernel side looks for it
	Under    enforce.Kind         // the kind of the node that it is under, 0 = none
	Selector destination.Selector // the part of the traffic, as the command names it
	Resolved destination.Selector // the same, with the present addresses of names
	Listed   []netip.Prefix       // the prefixes of its file
}

// FileRules are the rules of files for a part of the traffic, after which the limits of commands come.
type FileRules struct {
	Prefixes  []enforce.DestinationPrefix
	HasNumber func(uint32) bool // a rule has this number
}

// Destinations are the limits on parts of the traffic, as the kernel side takes them.
type Destinations struct {
	Prefixes []enforce.DestinationPrefix
	Numbers  map[uint32]uint32 // number of a command's selector, by the node's id
	// Over holds, by the rule set, a prefix that has too many limits and rules.
	Over map[uint32]netip.Prefix
}

// DestinationsOf compiles the lists of all prefixes.
func DestinationsOf(parts iter.Seq[Part], files FileRules) Destinations {
	made := Destinations{Numbers: map[uint32]uint32{}, Over: map[uint32]netip.Prefix{}}
	limits := map[uint32]map[uint32]destination.Limit{} // keyed by the rule set, then by the number
	in := func(ruleSet uint32) map[uint32]destination.Limit {
		if limits[ruleSet] == nil {
			limits[ruleSet] = map[uint32]destination.Limit{}
		}
		return limits[ruleSet]
	}
	used := map[uint32]string{}
	for p := range parts {
		number := p.number(files, used)
		made.Numbers[p.Node] = number
		in(p.RuleSet)[number] = destination.Limit{Selector: p.Resolved, Listed: p.Listed, Rule: number, Rank: p.rank()}
	}
	ofFiles := map[uint32][]enforce.DestinationPrefix{}
	for _, p := range files.Prefixes {
		ofFiles[p.Book] = append(ofFiles[p.Book], p)
		in(p.Book)
	}
	for _, ruleSet := range slices.Sorted(maps.Keys(limits)) {
		ordered := make([]destination.Limit, 0, len(limits[ruleSet]))
		for _, number := range slices.Sorted(maps.Keys(limits[ruleSet])) {
			ordered = append(ordered, limits[ruleSet][number])
		}
		list, full := destination.Compile(ruleSet, ordered, ofFiles[ruleSet])
		made.Prefixes = append(made.Prefixes, list...)
		if len(full) > 0 {
			made.Over[ruleSet] = full[0]
		}
	}
	return made
}

// Uses lists where the nodes set by commands hold.
func (made *Destinations) Uses(places iter.Seq[Place]) (uses []enforce.DestinationUse) {
	for p := range places {
		uses = append(uses, enforce.DestinationUse{Rule: made.Numbers[p.Node], Scope: p.Scope, Node: p.Node})
	}
	return uses
}

// rank returns the order in which limits for the same part are tried: the innermost first.
func (p *Part) rank() int {
	switch p.Under {
	case 0:
		return 3
	case enforce.KindTree:
		return 0
	case enforce.KindCgroup:
		return 1
	}
	return 2
}

// number returns the number of a limit's selector and rank. All nodes of one owner for the same part and rank share it.
// The kernel side tells them apart by their places on the path. The number is the same for each daemon.
func (p *Part) number(files FileRules, used map[uint32]string) uint32 {
	whose := fmt.Sprintf("%d to %s of rank %d", p.RuleSet, p.Selector, p.rank())
	h := fnv.New32a()
	fmt.Fprint(h, whose)
	flags := enforce.ProtocolFlag(p.Selector.Protocol)
	if p.Under == 0 {
		flags |= enforce.RuleEverybody
	}
	for number := h.Sum32(); ; number++ {
		number = number&^enforce.RuleFlags | flags
		if !files.HasNumber(number) && number&^enforce.RuleFlags != 0 && (used[number] == "" || used[number] == whose) {
			used[number] = whose
			return number
		}
	}
}
