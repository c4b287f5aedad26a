package daemon

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/rules"
)

// Rules for a destination have nodes of their own: one for each process tree that a rule matches, or one for
// all trees. The node of the tree, which may have no limit, tells the kernel side whose connections the rule is for.
// All of this follows from the rules and the trees. It is brought into force as a whole, together with the limits of
// commands: toward.go.

// destined holds the present rules for destinations.
type destined struct {
	known    bool // all rules were read, those of users too; until then the limits in force stay
	rules    map[uint32]destinedRule
	numbers  map[bookKey]uint32
	prefixes []enforce.DestinationPrefix
}

type destinedRule struct {
	*rules.Rule
	book uint32
}

// bookKey identifies a rule among those of all owners.
type bookKey struct {
	book uint32
	key  string
}

// owner returns the owner in whose name the rule limits.
func (r destinedRule) owner() enforce.Owner {
	if r.book == enforce.BookAdmin {
		return enforce.OwnerAdmin
	}
	return enforce.OwnerUser
}

// learnDestinations takes over the rules in force. The caller holds d.rules.mu.
func (d *Daemon) learnDestinations(now time.Time) {
	// A file that was wrong from the start has no rules in force. A user with such a file loses the former rules,
	// because no other user should have to wait for the file.
	next := destined{known: d.rules.system.set != nil && d.rules.read, rules: map[uint32]destinedRule{}, numbers: map[bookKey]uint32{}}
	add := func(book uint32, b *book) {
		if b.set == nil {
			return
		}
		prefixes := b.set.Destinations(now)
		if len(next.prefixes)+len(prefixes) > enforce.MostDestinationPrefixes {
			d.complainOfRules(fmt.Errorf("rules name more than %d prefixes in all: those of uid %d do not hold", enforce.MostDestinationPrefixes, book))
			return
		}
		for _, p := range prefixes {
			to := enforce.DestinationPrefix{Book: book, Prefix: p.Prefix}
			for _, r := range p.Rules {
				to.Rules = append(to.Rules, enforce.DestinationRule{Rule: next.number(book, r.Rule), PortFrom: r.From, PortTo: r.To})
			}
			next.prefixes = append(next.prefixes, to)
		}
	}
	add(enforce.BookAdmin, &d.rules.system)
	for _, uid := range slices.Sorted(maps.Keys(d.rules.users)) {
		add(uid, d.rules.users[uid])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destined = next
	d.outdateDestinations()
}

// number returns the number of a rule, which is the same in each daemon.
func (to *destined) number(book uint32, r *rules.Rule) uint32 {
	key := bookKey{book, r.Key()}
	if n, ok := to.numbers[key]; ok {
		return n
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s", book, key.key)
	for n := h.Sum32(); ; n++ {
		n &^= enforce.RuleFlags
		if r.Everybody() {
			n |= enforce.RuleEverybody
		}
		n |= protocolFlag(r.Protocol())
		if _, used := to.rules[n]; !used && n&^enforce.RuleFlags != 0 {
			to.rules[n], to.numbers[key] = destinedRule{r, book}, n
			return n
		}
	}
}

// protocolFlag returns the flag for a protocol in a rule's number.
func protocolFlag(p rules.Protocol) uint32 {
	switch p {
	case rules.TCP:
		return enforce.RuleTCP
	case rules.UDP:
		return enforce.RuleUDP
	}
	return 0
}

// wanted is a node of the desired state, and where it applies.
type wanted struct {
	rule  uint32
	scope *node // nil = all trees
	uses  []enforce.DestinationUse
}

// wantedDestinations returns the desired nodes by their subject. It also returns where rules match that exempt traffic
// instead of limiting it. The caller holds d.mu.
func (d *Daemon) wantedDestinations() (map[uint64]*wanted, []enforce.DestinationUse) {
	list := map[uint64]*wanted{}
	var free []enforce.DestinationUse
	add := func(number uint32, scope *node) {
		r := d.destined.rules[number]
		use := enforce.DestinationUse{Rule: number}
		if scope != nil {
			use.Scope = scope.id
		}
		if len(ruledWishOf([]*rules.Rule{r.Rule}).Rules) == 0 {
			free = append(free, use)
			return
		}
		key := uint64(number) << 32
		if r.Share != rules.ShareAll {
			key |= uint64(use.Scope)
		} else {
			scope = nil
		}
		if list[key] == nil {
			list[key] = &wanted{rule: number, scope: scope}
		}
		list[key].uses = append(list[key].uses, use)
	}
	for _, number := range slices.Sorted(maps.Keys(d.destined.rules)) {
		if d.destined.rules[number].Everybody() {
			add(number, nil)
		}
	}
	for _, n := range d.nodes.Sorted() {
		if n.res.Kind != enforce.KindTree || !n.applied {
			continue
		}
		for owner, w := range n.ruled.Owners {
			book := enforce.BookAdmin
			if enforce.Owner(owner) == enforce.OwnerUser {
				book = n.userUID
			}
			if w.Facts != nil && book != enforce.BookAdmin {
				book = w.Facts.User
			}
			for _, from := range w.To {
				if number, ok := d.destined.numbers[bookKey{book, from.Key}]; ok {
					add(number, n)
				}
			}
		}
	}
	return list, free
}

// settleDestinations brings the nodes into force after rules were applied to a process, if some of these are for a
// destination.
func (d *Daemon) settleDestinations(m matched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.destined.rules) > 0 || len(m[enforce.OwnerAdmin].destined)+len(m[enforce.OwnerUser].destined) > 0 {
		d.followDestinations()
	}
}

// destined reports whether a rule for a destination matches the processes of a tree.
func (n *node) destined() bool {
	return n.res.Kind == enforce.KindTree && slices.ContainsFunc(n.ruled.Owners[:], func(w desired.OwnerRules) bool { return len(w.To) > 0 })
}

// followDestinations is bringDestinations for callers that do not need its error, which it logs.
func (d *Daemon) followDestinations() {
	if err := d.bringDestinations(); err != nil {
		d.complain(err)
	}
}

// bringDestinations brings the nodes for destinations into force, with the scopes in which they apply. It makes new
// nodes before it removes old ones. The caller holds d.mu.
func (d *Daemon) bringDestinations() error {
	if !d.bindDestinations() || d.isDown {
		return nil
	}
	if !d.commanded.known {
		made, over := d.compileDestinations(nil)
		if len(made.prefixes) > enforce.MostDestinationPrefixes {
			return fmt.Errorf("limits and rules name %d prefixes in all: there may be %d", len(made.prefixes), enforce.MostDestinationPrefixes)
		}
		if books := slices.Sorted(maps.Keys(over)); len(books) > 0 {
			d.complain(fmt.Errorf("more than %d limits and rules are for %v: the last do not hold there", enforce.MostDestinationRules, over[books[0]]))
		}
		d.commanded = made
	}
	want, uses := d.wantedDestinations()
	var old []*node
	have := map[uint64]*node{}
	for _, n := range d.nodes.Sorted() {
		if n.res.Kind != enforce.KindDestination || n.to != nil {
			continue
		}
		if have[n.res.Key] = n; want[n.res.Key] == nil {
			old = append(old, n)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w := want[key]
		n := d.setDestined(have[key], key, w)
		if n == nil {
			continue
		}
		for _, use := range w.uses {
			use.Node = n.id
			uses = append(uses, use)
		}
	}
	uses = append(uses, d.usesToward()...)
	err := d.kernel.SetDestinations(enforce.Destinations{Prefixes: d.commanded.prefixes, Uses: uses})
	if d.behind.destinations = err; err != nil {
		return fmt.Errorf("limit by destinations: %w", err)
	}
	for _, n := range old {
		before := *n
		if err := d.drop(n); err != nil {
			d.ruleFailed(n.res, err)
			continue
		}
		d.tellSet(&before, nil, byRule)
		d.log.Info("a rule's limit was changed", "subject", n.res.Subject.String(), "node", n.id, "lifted", true)
	}
	return nil
}

// setDestined makes a node, or gives it the rule's present rates. It returns nil if that fails.
func (d *Daemon) setDestined(n *node, key uint64, w *wanted) *node {
	r := d.destined.rules[w.rule]
	next := node{res: destinedSubject(r, key, w.scope), since: time.Now()}
	if n != nil {
		next = *n
	}
	if uid := whoseTraffic(r, w.scope); uid != next.res.UID {
		next.res.UID = uid
		if n != nil {
			n.res.UID = uid
			d.nodes.Put(n)
			d.file.Outdate()
			d.touch(n)
		}
	}
	next.ruled = desired.Rules{Destined: w.rule}
	next.ruled.Owners[r.owner()] = ruledWishOf([]*rules.Rule{r.Rule})
	if r.owner() == enforce.OwnerUser {
		next.setUser(r.book)
	}
	if n != nil {
		d.changeRuled(n, &next)
		return n
	}
	actor := auth.Actor{}
	if r.owner() == enforce.OwnerUser {
		actor.UID = r.book
	}
	err := d.quota(actor, true)
	if err == nil {
		n, err = d.commit(nil, &next)
	}
	if err != nil {
		d.ruleFailed(next.res, err)
		return nil
	}
	d.tellSet(nil, n, byRule)
	d.log.Info("limit set by a rule", "subject", n.res.Subject.String(), "for", n.res.Name, "node", n.id)
	return n
}

// destinedSubject returns the subject and the name of a node of a rule for a destination.
func destinedSubject(r destinedRule, key uint64, scope *node) identity.Resolved {
	res := identity.Resolved{
		Subject: api.Subject{Kind: api.KindRule, ID: r.Name}, Kind: enforce.KindDestination, Key: key,
		Name: strings.Join(r.Connections(), ", "),
	}
	res.UID = whoseTraffic(r, scope)
	switch {
	case scope != nil:
		res.Name += observe.OfWhom + scope.res.Subject.String()
	case r.owner() == enforce.OwnerUser:
		res.Name += observe.OfWhom + identity.User(r.book).Subject.String()
	}
	return res
}

// whoseTraffic returns the user who may see which connections a rule's node is for, because they are the user's own; 0
// = none.
func whoseTraffic(r destinedRule, scope *node) uint32 {
	switch {
	case scope != nil && r.owner() == enforce.OwnerAdmin && r.Origin().IsInByOwnName(scope.ruled.Owners[enforce.OwnerAdmin].To):
		return 0
	case scope != nil:
		return scope.res.UID
	case r.owner() == enforce.OwnerUser:
		return r.book
	}
	return 0
}

// marks reports whether a node exists only to mark its processes: it tells the kernel side whose connections another
// node is for.
func (n *node) marks() bool {
	return (n.destined() || n.holds > 0) && len(n.limits()) == 0 && n.holding().Weight() == limit.DefaultWeight
}
