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
	"github.com/netnice/netnice/internal/rules"
)

// Limits on a part of the traffic that commands set have nodes like those of rules. Each is
// one owner's: another's of the same part is another node. Whose connections are meant is
// told by the node of whom it is under, which may have no limit, by its place on their
// paths.

// toward is for which part of the traffic a node is that a command set.
type toward struct {
	selector destination.Selector
	names    map[string][]netip.Addr // their addresses, as the state file has them
	scope    *node                   // under whom; nil = everybody whom the owner may limit
	leaving  bool
	met      bool // nobody named it: something was sent there, which has it followed (adapt_area.go)

	each   uint32    // whose limit for each address it is one of, 0 = it was set by itself
	volume uint64    // of such: what it had when it was looked at, in bytes
	usedAt time.Time // and when that was another
}

// savedToward is a toward as the state file has it; what it is for is the node's subject.
type savedToward struct {
	Scope uint32 `json:"scope,omitempty"` // the node under which it is
	// Names are the addresses that they had last.
	Names map[string][]netip.Addr `json:"names,omitempty"`
	Each  uint32                  `json:"each,omitempty"` // since version 9
	Met   bool                    `json:"met,omitempty"`  // since version 11
}

// owner is whose wish a node is that has one owner only.
func (n *node) owner() enforce.Owner {
	if n.own() {
		return enforce.OwnerUser
	}
	return enforce.OwnerAdmin
}

// book is where the kernel side looks for it.
func (n *node) book() uint32 {
	if n.own() {
		return n.userUID
	}
	return enforce.BookAdmin
}

// towardKey names the node among all, for this daemon and the next.
func towardKey(book uint32, s api.Subject, under identity.Resolved) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", book, s.ID, under.StartBoottimeNS)
	return h.Sum64()
}

// commanded is what commands want of destinations, made for the kernel side.
type commanded struct {
	known    bool // what follows is as it should be
	prefixes []enforce.DestinationPrefix
	numbers  map[uint32]uint32 // of a node's selector, by the node's id
}

// outdateDestinations has what commands want be looked at again. The caller holds d.mu.
func (d *Daemon) outdateDestinations() { d.commanded.known = false }

// rank says which of the limits for the same part is tried first: the innermost.
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

// compileDestinations makes the lists of all prefixes, with one node more if extra is not
// nil. Over has, by the book, a prefix that too many limits and rules are for. The caller holds d.mu.
func (d *Daemon) compileDestinations(extra *node) (made commanded, over map[uint32]netip.Prefix) {
	books := map[uint32]map[uint32]destination.Limit{} // and by the number
	made.numbers, over = map[uint32]uint32{}, map[uint32]netip.Prefix{}
	used := map[uint32]string{}
	nodes := d.sorted()
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
		books[n.book()][number] = destination.Limit{Selector: d.resolved(n.to.selector), Listed: d.listed(n), Rule: number, Rank: n.to.rank()}
	}
	files := map[uint32][]enforce.DestinationPrefix{}
	for _, p := range d.destined.prefixes {
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

// numberToward is that of a node's selector and rank, which all have who limit the same: the
// kernel side finds their nodes by their places. The same for each daemon.
func (d *Daemon) numberToward(n *node, used map[uint32]string) uint32 {
	whose := fmt.Sprintf("%d to %s of rank %d", n.book(), n.to.selector, n.to.rank())
	h := fnv.New32a()
	fmt.Fprint(h, whose)
	flags := protocolFlag(rules.Protocol(n.to.selector.Protocol))
	if n.to.scope == nil {
		flags |= enforce.RuleEverybody
	}
	for number := h.Sum32(); ; number++ {
		number = number&^enforce.RuleFlags | flags
		_, ruled := d.destined.rules[number]
		if !ruled && number&^enforce.RuleFlags != 0 && (used[number] == "" || used[number] == whose) {
			used[number] = whose
			return number
		}
	}
}

// bindDestinations reports whether the rules of files are known beside which commands'
// limits hold: with files that were wrong from the start, what holds of former ones stays
// as it is. The caller holds d.mu.
func (d *Daemon) bindDestinations() bool {
	if d.destined.known {
		return true
	}
	for _, n := range d.nodes {
		if n.res.Kind == enforce.KindDestination && n.to == nil {
			return false
		}
	}
	return true
}

// usesToward lists where nodes hold that commands set.
func (d *Daemon) usesToward() (uses []enforce.DestinationUse) {
	for _, n := range d.sorted() {
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

// liftToward lifts a node that a command had set. The caller holds d.mu.
func (d *Daemon) liftToward(n *node) error {
	n.to.leaving = true
	d.outdateDestinations()
	err := d.bringDestinations()
	if err == nil {
		err = d.drop(n)
	}
	if err != nil {
		n.to.leaving = false
		d.outdateDestinations()
		return err
	}
	d.dropLists()
	return d.letGo(n.to.scope)
}

// letGo gives up what only said whose connections are meant.
func (d *Daemon) letGo(scope *node) error {
	if scope == nil {
		return nil
	}
	scope.holds--
	if d.nodes[scope.id] == scope && scope.empty() {
		return d.drop(scope)
	}
	return nil
}

// endToward lifts the nodes under a subject that is gone. The caller holds d.mu.
func (d *Daemon) endToward() {
	var gone []*node
	for _, n := range d.nodes {
		if n.to != nil && n.to.scope != nil && d.nodes[n.to.scope.id] != n.to.scope {
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
		d.events.tell(n.audience(), n.event(api.EventLimitEnded, ""))
		d.log.Info("limit ended with its subject", "subject", n.res.Subject.String(), "node", n.id)
	}
	d.dropLists()
}

// adoptToward connects the nodes of commands with those that they are under; byID are
// nodes by the number that they had in the file. What has lost its own is lifted.
func (d *Daemon) adoptToward(byID map[uint32]*node) {
	some := false
	for _, n := range d.nodes {
		if n.to == nil {
			continue
		}
		some = true
		for name, addresses := range n.to.names {
			d.names[name] = found{addresses: addresses}
		}
		if n.scopeID == 0 {
			continue
		}
		n.to.scope = byID[n.scopeID]
		if scope := n.to.scope; scope != nil && d.nodes[scope.id] == scope {
			scope.holds++
			continue
		}
		n.to.scope, n.to.leaving = &node{}, true
	}
	for _, n := range d.sorted() {
		if n.to != nil && n.to.leaving || n.marker && n.holds == 0 && n.empty() {
			if err := d.drop(n); err != nil {
				d.log.Warn("a limit that has lost its subject is not lifted", "subject", n.res.Subject.String(), "err", err)
			}
		}
	}
	d.loadLists()
	if some {
		d.followDestinations()
	}
}
