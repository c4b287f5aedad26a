package daemon

import (
	"sync"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/observe"
)

// Readers do not take d.mu: they read the last published snapshot. A writer notes each node that it changes (touch).
// The snapshot is published before the writer gives d.mu away, so that whoever was answered, or waited for the lock, finds
// the change. An event about a node is sent after the snapshot with that node: publish comes before it.

// writersLock is the lock on the desired state. Its Unlock publishes what has changed under it.
type writersLock struct {
	sync.Mutex
	publish func() // nil = there are no readers yet
}

// Unlock publishes the changes, and unlocks.
func (l *writersLock) Unlock() {
	if l.publish != nil {
		l.publish()
	}
	l.Mutex.Unlock()
}

// unpublished holds what the next snapshot changes. d.mu guards it.
type unpublished struct {
	latest *observe.Snapshot // with the changes so far that draft was asked for
	nodes  map[uint32]bool   // nodes that are changed, new or gone since, by id
	shared bool              // names, lists or settings of the whole machine are changed since
	check  func()            // for tests: called after each publication
}

// touch notes that a node is changed, new or gone, as far as readers see it. The caller holds d.mu.
func (d *Daemon) touch(n *node) { d.touchID(n.id) }

func (d *Daemon) touchID(id uint32) {
	if d.unpublished.nodes == nil {
		d.unpublished.nodes = make(map[uint32]bool)
	}
	d.unpublished.nodes[id] = true
}

// touchShared notes that names, lists of prefixes, or the settings of the whole machine have changed. The caller holds
// d.mu.
func (d *Daemon) touchShared() { d.unpublished.shared = true }

// draft returns the snapshot of the present state, with all changes, which readers do not see yet. The caller holds
// d.mu.
func (d *Daemon) draft() *observe.Snapshot {
	u := &d.unpublished
	if u.latest == nil {
		u.latest = observe.Empty()
	}
	if len(u.nodes) == 0 && !u.shared {
		return u.latest
	}
	changed := make(map[uint32]*observe.Node, len(u.nodes))
	for id := range u.nodes {
		changed[id] = nil
		if n := d.nodes.Get(id); n != nil {
			changed[id] = n.record()
		}
	}
	var shared *observe.Shared
	if u.shared {
		shared = d.sharedRecord()
	}
	u.latest = u.latest.With(changed, shared)
	u.nodes, u.shared = nil, false
	return u.latest
}

// publish lets readers see the present state. The caller holds d.mu.
func (d *Daemon) publish() {
	if s := d.draft(); s != d.observe.Snapshot() {
		d.observe.Publish(s)
	}
	if d.unpublished.check != nil {
		d.unpublished.check()
	}
}

// publishAll publishes the state that this daemon has taken over. Changes from the time before it served were not noted.
func (d *Daemon) publishAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.nodes.All() {
		d.touch(n)
	}
	d.touchShared()
}

// sharedRecord returns what nodes have in common, for readers. The caller holds d.mu.
func (d *Daemon) sharedRecord() *observe.Shared {
	s := &observe.Shared{
		Names: d.names.Shown(), Listed: make(map[observe.ListKey]int), InputMeterOff: d.system.InputMeterOff,
	}
	for key, list := range d.lists.All() {
		s.Listed[key] = len(list)
	}
	return s
}

// record returns the node as readers know it.
func (n *node) record() *observe.Node {
	pid, start := n.rootProcess()
	r := &observe.Node{
		ID: n.id, Resolved: n.res, Since: n.since, CountsFrom: n.countsFrom, Process: observe.Process{PID: pid, StartNS: start},
		Group: n.group, Limits: n.limits(), Holding: n.Holding(), ReservedOn: n.Reserved.Link,
		Line: n.Requested[enforce.OwnerAdmin].Line, Grant: n.Requested[enforce.OwnerAdmin].Grant,
		Users: observe.Users{Owner: n.userUID, HasOwner: n.usersWish(), OnlyUser: n.IsOnlyUsers(), Bound: n.userBound()},
		Rules: observe.Rules{Destined: n.Ruled.Destined}, IsMarker: n.marks(),
	}
	r.Guaranteed[enforce.Up], r.Guaranteed[enforce.Down] = n.Guarantee(enforce.Up), n.Guarantee(enforce.Down)
	if n.scope != nil {
		r.Users.Scope, r.Users.HasScope = n.scope.UID, true
	}
	for owner, w := range n.Ruled.Owners {
		r.Rules.Limiting[owner], r.Rules.Meant[owner] = w.Rules, w.To
	}
	if n.to != nil {
		r.To = &observe.Destination{Selector: n.to.selector, OfAll: n.to.scope == nil, IsMet: n.to.met || n.to.each != 0, List: n.listKey()}
		if n.to.scope != nil {
			r.To.Under = n.to.scope.id
		}
	}
	return r
}

// userBound returns the user whose traffic the node limits in part, 0 = no single user's.
func (n *node) userBound() uint32 {
	if n.to != nil && n.to.scope != nil && n.to.scope.scope != nil {
		return n.to.scope.scope.UID
	}
	return n.res.UID
}
