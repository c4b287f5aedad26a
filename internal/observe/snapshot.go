// Package observe answers questions about what is in force: lists, the limits that bind a connection, events, and the
// figures in them. It reads a Snapshot, which never changes, and the counters of the kernel side. It owns who may see
// what. It never takes a lock under which limits are set, and it changes no limit.
package observe

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/rules"
)

// Node is one node in force, as readers know it. It is never changed: its writer replaces it. Slices and pointers in it
// are never changed either.
type Node struct {
	ID uint32
	identity.Resolved
	Since time.Time
	// CountsFrom is the moment at which the node's counters were 0; the zero value means before the daemon began.
	CountsFrom time.Time
	Process    Process
	Group      string // the group that the node was taken into, "" = none
	Limits     []Limit
	Holding    limit.Owners // the limits in force of each owner
	// Guaranteed holds the guarantees on sending and on receiving, in bytes/s.
	Guaranteed [enforce.Directions]uint64
	ReservedOn uint32 // the node of the link of its reservation, 0 = none
	Line       limit.Line
	Grant      limit.Grant
	Users      Users
	To         *Destination // the destination that a command names; nil for other nodes
	Rules      Rules
	// IsMarker says that the node only tells the kernel side whose connections another node is for.
	IsMarker bool
}

// Process is the process by which people know a node. The zero value is none.
type Process struct {
	PID     int
	StartNS uint64 // on CLOCK_BOOTTIME
}

// Limit is one rate that an owner has set.
type Limit struct {
	api.Limit
	// EndBoottimeNS is the end of a limit for a time on CLOCK_BOOTTIME, 0 = none. It takes the place of LeftNS.
	EndBoottimeNS uint64
}

// Users are the users whom a node concerns.
type Users struct {
	Owner    uint32 // the user whose limit the node has, if HasOwner
	HasOwner bool   // a user requests something of the node
	OnlyUser bool   // the administrator requests nothing of the node
	Scope    uint32 // the user for whose process the node's cgroup was made, if HasScope
	HasScope bool
	Bound    uint32 // the user whose traffic the node limits in part, 0 = no single user's
}

// Destination is the part of the traffic that a command's limit is for.
type Destination struct {
	Selector destination.Selector
	Under    uint32  // the node that the limit is under, 0 = none
	OfAll    bool    // it is for all traffic that the owner may limit
	IsMet    bool    // no owner has named the address: a program sent there
	List     ListKey // the file of prefixes, the zero value = none
}

// ListKey identifies a file of prefixes of one owner.
type ListKey struct {
	RuleSet uint32
	Path    string
}

// Rules are the rules that request something of a node.
type Rules struct {
	Limiting [enforce.Owners][]rules.Origin // rules that limit the node
	// Meant holds the rules for a destination that match the node's process. Their limits are on nodes of their own.
	Meant    [enforce.Owners][]rules.Origin
	Destined uint32 // the number of the rule for a destination whose node this is, 0 = none
}

// Shared is what nodes have in common. It is never changed.
type Shared struct {
	Names         map[string]api.NameAddresses // addresses of the host names that limits are for
	Listed        map[ListKey]int              // number of prefixes in files
	InputMeterOff bool                         // received traffic counts in no total, on the whole machine
}

// shards is the number of parts of a snapshot. A changed node costs a copy of its part: 40 nodes of 10,000.
const shards = 256

// Snapshot is all that is in force at one moment. It is never changed, so any number of readers use it without a lock.
type Snapshot struct {
	nodes   [shards]map[uint32]*Node
	index   nodeIndex
	count   int
	cgroups int // number of nodes on a cgroup that has a folder
	shared  *Shared

	// The first reader that needs it computes the order of the nodes, and finds where cgroups are mounted. Snapshots
	// share the order as long as no subject has changed, and the mount while there is a node on a cgroup.
	order *lazy[[]uint32]
	mount *lazy[string]
}

// lazy is a value that its first user computes.
type lazy[T any] struct {
	once  sync.Once
	value T
}

func (l *lazy[T]) get(compute func() T) T {
	l.once.Do(func() { l.value = compute() })
	return l.value
}

// Empty returns a snapshot without nodes.
func Empty() *Snapshot {
	return &Snapshot{shared: &Shared{}, order: new(lazy[[]uint32]), mount: new(lazy[string])}
}

// With returns a snapshot in which some nodes are others; nil = the node is gone. A nil shared leaves that as it is. The
// cost does not grow with the number of other nodes, but for the 256th parts that are copied for each changed node.
func (s *Snapshot) With(changed map[uint32]*Node, shared *Shared) *Snapshot {
	next := *s
	if shared != nil {
		next.shared = shared
	}
	var copied [shards]bool
	moved := false
	index := indexChange{index: &next.index}
	for id, n := range changed {
		part := id % shards
		if !copied[part] {
			copied[part] = true
			if next.nodes[part] = maps.Clone(s.nodes[part]); next.nodes[part] == nil {
				next.nodes[part] = make(map[uint32]*Node)
			}
		}
		was := next.nodes[part][id]
		moved = moved || (was == nil) != (n == nil) || was != nil && was.Kind != n.Kind
		next.cgroups += index.move(id, was.indexKeys(), n.indexKeys())
		if n == nil {
			delete(next.nodes[part], id)
		} else {
			next.nodes[part][id] = n
		}
		next.count += countOf(n != nil) - countOf(was != nil)
	}
	if moved {
		next.order = new(lazy[[]uint32])
	}
	if (s.cgroups == 0) != (next.cgroups == 0) {
		next.mount = new(lazy[string])
	}
	return &next
}

func countOf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Node returns a node by its id, nil if there is none.
func (s *Snapshot) Node(id uint32) *Node { return s.nodes[id%shards][id] }

// Count returns the number of nodes.
func (s *Snapshot) Count() int { return s.count }

// Shared returns what the nodes have in common.
func (s *Snapshot) Shared() *Shared { return s.shared }

// All returns the nodes, outermost kind first, then by id. The caller may change the list.
func (s *Snapshot) All() []*Node {
	ids := s.order.get(func() []uint32 {
		all := make([]*Node, 0, s.count)
		for _, part := range s.nodes {
			all = slices.AppendSeq(all, maps.Values(part))
		}
		slices.SortFunc(all, compareNodes)
		ids := make([]uint32, len(all))
		for i, n := range all {
			ids[i] = n.ID
		}
		return ids
	})
	list := make([]*Node, len(ids))
	for i, id := range ids {
		list[i] = s.Node(id)
	}
	return list
}

// Shown returns the nodes that lists show, in the order of All.
func (s *Snapshot) Shown() []*Node {
	return slices.DeleteFunc(s.All(), func(n *Node) bool { return n.IsMarker })
}

// RuleCounts counts the nodes that have a limit by each rule, by its key. For a rule on a destination these are the
// rule's own nodes.
func (s *Snapshot) RuleCounts() map[string]int {
	count := make(map[string]int)
	for _, part := range s.nodes {
		for _, n := range part {
			for _, list := range n.Rules.Limiting {
				for _, from := range list {
					count[from.Key]++
				}
			}
		}
	}
	return count
}

// Matches reports whether a node on a subject is the one that a request names. The subject itself may be gone, as when
// its process has ended but children live on. Then named has the canonical name by which the limit was set.
func Matches(on, res identity.Resolved, named *api.Subject) bool {
	if named != nil {
		return on.Subject == *named
	}
	return on.Same(res) || res.Named() && on.Subject == res.Subject // a unit may have restarted since
}

// find returns the node that a request names, nil if there is none: see Matches. As desired.Table.Find, it prefers one
// that means the same to the kernel, and then the lowest id.
func (s *Snapshot) find(res identity.Resolved, named *api.Subject) (found *Node) {
	same := false
	for _, part := range s.nodes {
		for _, n := range part {
			if !Matches(n.Resolved, res, named) {
				continue
			}
			is := named == nil && n.Same(res)
			if found == nil || is && !same || is == same && n.ID < found.ID {
				found, same = n, is
			}
		}
	}
	return found
}

// shownLimits returns the node's limits in the form of the API.
func (n *Node) shownLimits() []api.Limit {
	list := make([]api.Limit, len(n.Limits))
	for i, l := range n.Limits {
		list[i] = l.Limit
		if l.EndBoottimeNS != 0 {
			list[i].LeftNS = uint64(max(int64(l.EndBoottimeNS-identity.BootTimeNS()), 1))
		}
	}
	return list
}

// meterOff reports whether traffic that a node receives does not count in its total. Either its owners request that, or
// it is set for the whole machine, whatever the owners request.
func (s *Snapshot) meterOff(n *Node) bool {
	return n.Holding.MeterOff() || s.shared.InputMeterOff && n.Holding.HasTotal()
}

// shownNames lists the host names of a node with their addresses.
func (s *Snapshot) shownNames(n *Node) (list []api.NameAddresses) {
	if n.To == nil {
		return nil
	}
	for _, name := range n.To.Selector.Names {
		one, ok := s.shared.Names[name]
		if !ok {
			one = api.NameAddresses{Name: name, Addresses: []string{}}
		}
		list = append(list, one)
	}
	return list
}

// listed returns the number of prefixes in the file of a node's destination.
func (s *Snapshot) listed(n *Node) int {
	if n.To == nil || n.To.Selector.List == "" {
		return 0
	}
	return s.shared.Listed[n.To.List]
}
