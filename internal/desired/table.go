package desired

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// Keys are what a table finds a node by. Two nodes never have the same id; everything else may be the same.
type Keys struct {
	ID      uint32
	Kind    enforce.Kind
	Subject api.Subject
	// Kernel is what the kernel knows the subject as, the zero value while the subject is pending.
	Kernel KernelKey
	// Scoped is the process that the node's cgroup was made for, the zero value for other nodes.
	Scoped ProcessKey
	// Owner is the user who requests something of the node. Matched is the user of the process whose own node the
	// administrator's rules limit. Quotas count both.
	Owner, Matched User
}

// KernelKey is what the kernel knows a subject as.
type KernelKey struct {
	kind enforce.Kind
	key  uint64
	tick uint64 // of a process's start
}

// ProcessKey is a process.
type ProcessKey struct {
	pid  int
	tick uint64
}

// User is a user, or none if it is the zero value.
type User struct {
	UID   uint32
	Known bool
}

// KeysOf returns the keys of a node that follow from its subject.
func KeysOf(id uint32, res identity.Resolved, scope *Scope) Keys {
	k := Keys{ID: id, Kind: res.Kind, Subject: res.Subject, Kernel: kernelKey(res)}
	if scope != nil {
		k.Scoped = processKey(scope.PID, scope.StartNS)
	}
	return k
}

func kernelKey(res identity.Resolved) KernelKey {
	if res.Pending() {
		return KernelKey{}
	}
	k := KernelKey{kind: res.Kind, key: res.Key}
	if res.Kind == enforce.KindTree {
		k.tick = res.StartBoottimeNS / identity.TickNS
	}
	return k
}

func processKey(pid int, startNS uint64) ProcessKey {
	return ProcessKey{pid: pid, tick: startNS / identity.TickNS}
}

// Node is what a table holds, usually a pointer.
type Node interface {
	comparable
	Keys() Keys
}

// Table holds the nodes of all limits. It finds one in a time that does not grow with their number. The caller holds the
// lock of the nodes, and calls Put after each change of a node's keys.
type Table[N Node] struct {
	nodes   map[uint32]N
	keys    map[uint32]Keys // those that a node is indexed by
	subject index[api.Subject]
	kernel  index[KernelKey]
	scoped  index[ProcessKey]
	owned   tally // by Keys.Owner
	matched tally // by Keys.Matched
	order   []ordered[N]
}

// ordered is a node with its position in the order: outermost kind first, then by id.
type ordered[N Node] struct {
	kind enforce.Kind
	id   uint32
	node N
}

// NewTable returns a table without nodes.
func NewTable[N Node]() *Table[N] {
	return &Table[N]{
		nodes: map[uint32]N{}, keys: map[uint32]Keys{},
		subject: index[api.Subject]{}, kernel: index[KernelKey]{}, scoped: index[ProcessKey]{},
		owned: tally{counts: map[uint32]int{}}, matched: tally{counts: map[uint32]int{}},
	}
}

// Len returns the number of nodes.
func (t *Table[N]) Len() int { return len(t.nodes) }

// Get returns a node by its id, the zero value if there is none.
func (t *Table[N]) Get(id uint32) N { return t.nodes[id] }

// Indexed returns the keys that a node is found by. They are its keys, unless a Put is missing.
func (t *Table[N]) Indexed(id uint32) Keys { return t.keys[id] }

// Put adds a node, or notes that its keys have changed. The id of a node never changes.
func (t *Table[N]) Put(n N) {
	k := n.Keys()
	was, known := t.keys[k.ID]
	if known && was == k && t.nodes[k.ID] == n {
		return
	}
	if known {
		t.unindex(was)
	}
	if !known || was.Kind != k.Kind || t.nodes[k.ID] != n {
		if known {
			t.disorder(was)
		}
		t.order = slices.Insert(t.order, t.position(k), ordered[N]{k.Kind, k.ID, n})
	}
	t.nodes[k.ID], t.keys[k.ID] = n, k
	t.subject.add(k.Subject, k.ID)
	t.kernel.add(k.Kernel, k.ID)
	t.scoped.add(k.Scoped, k.ID)
	t.owned.add(k.Owner, 1)
	t.matched.add(k.Matched, 1)
}

// Remove removes a node, if it exists.
func (t *Table[N]) Remove(id uint32) {
	was, known := t.keys[id]
	if !known {
		return
	}
	t.disorder(was)
	t.unindex(was)
	delete(t.nodes, id)
	delete(t.keys, id)
}

func (t *Table[N]) unindex(k Keys) {
	t.subject.remove(k.Subject, k.ID)
	t.kernel.remove(k.Kernel, k.ID)
	t.scoped.remove(k.Scoped, k.ID)
	t.owned.add(k.Owner, -1)
	t.matched.add(k.Matched, -1)
}

// disorder takes the node with these keys out of the order.
func (t *Table[N]) disorder(k Keys) {
	at := t.position(k)
	t.order = slices.Delete(t.order, at, at+1)
}

// position returns where a node with these keys is in the order, or would be.
func (t *Table[N]) position(k Keys) int {
	at, _ := slices.BinarySearchFunc(t.order, k, func(o ordered[N], k Keys) int {
		return cmp.Or(cmp.Compare(k.Kind, o.kind), cmp.Compare(o.id, k.ID))
	})
	return at
}

// All iterates over all nodes in no order. The caller may put and remove nodes meanwhile.
func (t *Table[N]) All() iter.Seq[N] { return maps.Values(t.nodes) }

// Sorted returns the nodes, outermost kind first, then by id. The caller may change the list.
func (t *Table[N]) Sorted() []N {
	list := make([]N, len(t.order))
	for i := range t.order {
		list[i] = t.order[i].node
	}
	return list
}

// WithSubject returns the nodes whose subject has this name, by id.
func (t *Table[N]) WithSubject(s api.Subject) []N { return t.of(t.subject[s]) }

// Same returns the nodes that mean the same subject to the kernel, by id: see identity.Resolved.Same.
func (t *Table[N]) Same(res identity.Resolved) []N {
	ids := t.kernel[kernelKey(res)]
	if res.Pending() {
		ids = nil
	}
	if res.Renewed() { // only their names distinguish pending subjects
		for _, id := range t.subject[res.Subject] {
			k := t.keys[id]
			if k.Kind == res.Kind && (k.Kernel == KernelKey{} || res.Pending()) && !slices.Contains(ids, id) {
				ids = append(slices.Clip(ids), id)
			}
		}
		ids = slices.Sorted(slices.Values(ids))
	}
	return t.of(ids)
}

// Find returns the node of a subject: one that means the same to the kernel, else one with the same name, if that
// outlives what the kernel knows (identity.Resolved.Named). It returns the zero value if there is none.
func (t *Table[N]) Find(res identity.Resolved) (none N) {
	for _, n := range t.Same(res) {
		return n
	}
	if res.Named() {
		return t.FindName(res.Subject)
	}
	return none
}

// FindName returns the node with the lowest id whose subject has this name, the zero value if there is none.
func (t *Table[N]) FindName(s api.Subject) (none N) {
	if ids := t.subject[s]; len(ids) > 0 {
		return t.nodes[ids[0]]
	}
	return none
}

// ScopeOf returns the node whose cgroup was made for a process, the zero value if there is none.
func (t *Table[N]) ScopeOf(pid int, startNS uint64) (none N) {
	if ids := t.scoped[processKey(pid, startNS)]; len(ids) > 0 {
		return t.nodes[ids[0]]
	}
	return none
}

// Owned returns the number of nodes whose owner is one of these users. Matched is the same for Keys.Matched.
func (t *Table[N]) Owned(first, last uint32) int { return t.owned.sum(first, last) }

// Matched is Owned for Keys.Matched.
func (t *Table[N]) Matched(first, last uint32) int { return t.matched.sum(first, last) }

func (t *Table[N]) of(ids []uint32) []N {
	list := make([]N, len(ids))
	for i, id := range ids {
		list[i] = t.nodes[id]
	}
	return list
}

// tally counts nodes by user.
type tally struct {
	counts map[uint32]int
	uids   []uint32 // those with a count, in ascending order
}

// add counts more nodes of a user, or fewer.
func (t *tally) add(u User, more int) {
	if !u.Known {
		return
	}
	at, known := slices.BinarySearch(t.uids, u.UID)
	switch t.counts[u.UID] += more; {
	case t.counts[u.UID] == 0:
		delete(t.counts, u.UID)
		t.uids = slices.Delete(t.uids, at, at+1)
	case !known:
		t.uids = slices.Insert(t.uids, at, u.UID)
	}
}

// sum returns the number of the nodes of users from the first to the last.
func (t *tally) sum(first, last uint32) (all int) {
	at, _ := slices.BinarySearch(t.uids, first)
	for _, uid := range t.uids[at:] {
		if uid > last {
			break
		}
		all += t.counts[uid]
	}
	return all
}

// index holds ids in ascending order by a key. The zero value of a key is not indexed.
type index[K comparable] map[K][]uint32

func (x index[K]) add(key K, id uint32) {
	var none K
	if key == none {
		return
	}
	at, _ := slices.BinarySearch(x[key], id)
	x[key] = slices.Insert(x[key], at, id)
}

func (x index[K]) remove(key K, id uint32) {
	list := x[key]
	at, found := slices.BinarySearch(list, id)
	switch {
	case !found:
	case len(list) == 1:
		delete(x, key)
	default:
		x[key] = slices.Delete(list, at, at+1)
	}
}
