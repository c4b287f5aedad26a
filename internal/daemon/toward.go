package daemon

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// Limits that commands set on a destination have nodes like those of rules. Each node belongs to one owner; another
// owner's limit on the same destination is another node. A node applies to the connections of the subject that it is
// under. The kernel finds these by the subject's node on their paths. The subject itself may have no limit.

// toward is the destination of a node that a command set.
type toward struct {
	selector destination.Selector
	names    map[string][]netip.Addr // addresses of the names, as the state file has them
	scope    *node                   // the node that it is under; nil = all traffic that the owner may limit
	leaving  bool
	met      bool // not named by an owner, but followed since a program sent there (adaptation/area.go)

	each   uint32    // id of the limit for each address that it is a part of, 0 = it was set by itself
	volume uint64    // of such a node: its volume at the last look, in bytes
	usedAt time.Time // the last time at which the volume had changed
}

// owner returns the owner of a node that has only one owner.
func (n *node) owner() enforce.Owner {
	if n.own() {
		return enforce.OwnerUser
	}
	return enforce.OwnerAdmin
}

// book returns the number of the rule set in which the kernel side looks for the node.
func (n *node) book() uint32 {
	if n.own() {
		return n.userUID
	}
	return enforce.BookAdmin
}

// towardKey identifies the node among all nodes, for this daemon and the next.
func towardKey(book uint32, s api.Subject, under identity.Resolved) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", book, s.ID, under.StartBoottimeNS)
	return h.Sum64()
}

// commanded holds the destination limits of commands, compiled for the kernel side.
type commanded struct {
	known    bool // the fields below are up to date
	prefixes []enforce.DestinationPrefix
	numbers  map[uint32]uint32 // number of a node's selector, by the node's id
}

// outdateDestinations has the destination limits of commands compiled again. The caller holds d.mu.
func (d *Daemon) outdateDestinations() { d.commanded.known = false }

// rank returns the order in which limits for the same part are tried: the innermost first.
func (t *toward) rank() int {
	switch {
	case t.scope == nil:
		return rankEverybody
	case t.scope.res.Kind == enforce.KindTree:
		return 0
	case t.scope.res.Kind == enforce.KindCgroup:
		return 1
	}
	return 2
}

const rankEverybody = 3

// compileDestinations compiles the lists of all prefixes, with one more node if extra is not nil. The map over holds,
// by the rule set, a prefix that has too many limits and rules. The caller holds d.mu.
func (d *Daemon) compileDestinations(extra *node) (made commanded, over map[uint32]netip.Prefix) {
	books := map[uint32]map[uint32]destination.Limit{} // keyed by the rule set, then by the number
	made.numbers, over = map[uint32]uint32{}, map[uint32]netip.Prefix{}
	used := map[uint32]string{}
	nodes := d.nodes.Sorted()
	if extra != nil {
		nodes = append(nodes, extra)
	}
	for _, n := range nodes {
		if n.to == nil || n.to.leaving {
			continue
		}
		if books[n.book()] == nil {
			books[n.book()] = map[uint32]destination.Limit{}
		}
		number := d.numberToward(n, used)
		made.numbers[n.id] = number
		books[n.book()][number] = destination.Limit{Selector: d.names.Resolved(n.to.selector), Listed: d.listed(n), Rule: number, Rank: n.to.rank()}
	}
	files := map[uint32][]enforce.DestinationPrefix{}
	for _, p := range d.destined.Prefixes {
		files[p.Book] = append(files[p.Book], p)
		if books[p.Book] == nil {
			books[p.Book] = map[uint32]destination.Limit{}
		}
	}
	for _, book := range slices.Sorted(maps.Keys(books)) {
		limits := make([]destination.Limit, 0, len(books[book]))
		for _, number := range slices.Sorted(maps.Keys(books[book])) {
			limits = append(limits, books[book][number])
		}
		list, full := destination.Compile(book, limits, files[book])
		made.prefixes = append(made.prefixes, list...)
		if len(full) > 0 {
			over[book] = full[0]
		}
	}
	made.known = true
	return made, over
}

// numberToward returns the number of a node's selector and rank. All nodes of one owner for the same part and rank
// share it. The kernel side tells them apart by their places on the path. The number is the same for each daemon.
func (d *Daemon) numberToward(n *node, used map[uint32]string) uint32 {
	whose := fmt.Sprintf("%d to %s of rank %d", n.book(), n.to.selector, n.to.rank())
	h := fnv.New32a()
	fmt.Fprint(h, whose)
	flags := enforce.ProtocolFlag(n.to.selector.Protocol)
	if n.to.scope == nil {
		flags |= enforce.RuleEverybody
	}
	for number := h.Sum32(); ; number++ {
		number = number&^enforce.RuleFlags | flags
		if !d.destined.HasNumber(number) && number&^enforce.RuleFlags != 0 && (used[number] == "" || used[number] == whose) {
			used[number] = whose
			return number
		}
	}
}

// bindDestinations reports whether the daemon knows the rules of files, beside which the limits of commands hold. With
// files that were wrong from the start, the destinations of former rules stay unchanged. The caller holds d.mu.
func (d *Daemon) bindDestinations() bool {
	if d.destined.Known {
		return true
	}
	for n := range d.nodes.All() {
		if n.res.Kind == enforce.KindDestination && n.to == nil {
			return false
		}
	}
	return true
}

// retryDestinations tells the kernel again which nodes hold for which destination, if it has refused that. The first
// refusal was logged. The caller holds d.mu.
func (d *Daemon) retryDestinations() {
	was := d.behind.destinations
	if was == nil {
		return
	}
	err := d.bringDestinations()
	switch now := d.behind.destinations; {
	case now == nil:
		d.log.Info("the kernel knows again which limits hold for which destination")
	case err != nil && now.Error() != was.Error():
		d.complain(err)
	}
}

// usesToward lists the places where nodes set by commands hold.
func (d *Daemon) usesToward() (uses []enforce.DestinationUse) {
	for _, n := range d.nodes.Sorted() {
		if n.to == nil || n.to.leaving {
			continue
		}
		use := enforce.DestinationUse{Rule: d.commanded.numbers[n.id], Node: n.id}
		if n.to.scope != nil {
			use.Scope = n.to.scope.id
		}
		uses = append(uses, use)
	}
	return uses
}

// endToward lifts the destination limits under a subject that is gone. The caller holds d.mu.
func (d *Daemon) endToward() {
	var gone []*node
	for n := range d.nodes.All() {
		if n.to != nil && n.to.scope != nil && d.nodes.Get(n.to.scope.id) != n.to.scope {
			n.to.leaving = true
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return
	}
	d.outdateDestinations()
	d.followDestinations()
	for _, n := range gone {
		if err := d.drop(n); err != nil {
			d.once(n, err)
			continue
		}
		d.tellOf(n, api.EventLimitEnded, "")
		d.log.Info("limit ended with its subject", "subject", n.res.Subject.String(), "node", n.id)
	}
	d.dropLists()
}

// adoptToward connects the nodes of commands with the nodes that they are under; byID maps the numbers in the file to
// nodes. It lifts a node that has lost the node that it is under.
func (d *Daemon) adoptToward(byID map[uint32]*node) {
	some := false
	for n := range d.nodes.All() {
		if n.to == nil {
			continue
		}
		some = true
		d.names.Adopt(n.to.names)
		if n.scopeID == 0 {
			continue
		}
		n.to.scope = byID[n.scopeID]
		if scope := n.to.scope; scope != nil && d.nodes.Get(scope.id) == scope {
			scope.holds++
			continue
		}
		n.to.scope, n.to.leaving = &node{}, true
	}
	for _, n := range d.nodes.Sorted() {
		if n.to != nil && n.to.leaving || n.marker && n.holds == 0 && n.empty() {
			if err := d.drop(n); err != nil {
				d.log.Warn("a limit that has lost its subject is not lifted", "subject", n.res.Subject.String(), "err", err)
			}
		}
	}
	d.loadLists()
	if some {
		d.touchShared()
		d.followDestinations()
	}
}
