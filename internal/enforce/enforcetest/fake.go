// Package enforcetest holds a Kernel for tests that enforces nothing. It outlives the daemon that uses it, as
// pinned state does.
package enforcetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/netnice/netnice/internal/enforce"
)

// Kernel is an enforce.Kernel that only remembers. The zero value is ready.
type Kernel struct {
	mu           sync.Mutex
	nodes        map[uint32]enforce.NodeSpec
	subjects     map[subject]uint32 // the node that was set last, which may have gone; none of the pool's
	stats        map[uint32]enforce.NodeStats
	destinations enforce.Destinations
	sockets      []enforce.SocketStats
	stateless    enforce.StatelessStats
	slowRead     <-chan struct{} // Stateless answers when it is closed; nil = at once
	looks        []enforce.SocketLook
	peers        []enforce.Peer
	packetQueues []enforce.Queue
	held         map[uint32]int  // number of holders of a queue, by namespace
	slow         <-chan struct{} // queues are made when it is closed; nil = at once
	unknown      enforce.UnknownStats
	fail         map[string]error
	calls        map[string]int
	room         int // the most nodes that there may be, 0 = any number
	events       chan struct{}
	execs        chan enforce.Exec
	requests     chan enforce.Request
	answers      map[uint64]enforce.Answer
	askers       map[uint64]enforce.SocketReservation // key: number of a request
	reserved     map[uint64]enforce.SocketReservation // key: cookie
	following    bool
	lost         uint64
	trees        map[int][]uint32
	subordinates []enforce.Subordinates
	admins       *uint32
	down, open   bool
}

// Open is meant for daemon.Options.OpenKernel.
func (k *Kernel) Open() (enforce.Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Open"); err != nil {
		return nil, err
	}
	k.open, k.down = true, false
	return k, nil
}

// enter counts the call and returns the error that Fail set for it.
func (k *Kernel) enter(method string) error {
	if k.calls == nil {
		k.calls = make(map[string]int)
		k.nodes = make(map[uint32]enforce.NodeSpec)
		k.subjects = make(map[subject]uint32)
		k.stats = make(map[uint32]enforce.NodeStats)
		k.trees = make(map[int][]uint32)
		k.held = make(map[uint32]int)
	}
	k.calls[method]++
	return k.fail[method]
}

// Fail makes a method return err. A second call with nil ends that.
func (k *Kernel) Fail(method string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail == nil {
		k.fail = make(map[string]error)
	}
	k.fail[method] = err
}

// SetRoom bounds the number of nodes.
func (k *Kernel) SetRoom(nodes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.room = nodes
}

// Calls returns how often a method was called.
func (k *Kernel) Calls(method string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[method]
}

// IsDown reports whether the daemon called Down.
func (k *Kernel) IsDown() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.down }

// IsOpen reports whether a daemon holds the kernel open.
func (k *Kernel) IsOpen() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.open }

// Put places a node as an earlier daemon would have done.
func (k *Kernel) Put(spec enforce.NodeSpec) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(spec)
}

// Drop loses a node behind the daemon's back.
func (k *Kernel) Drop(id uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, id)
	delete(k.stats, id)
}

// SetStats replaces the result of Stats for one node.
func (k *Kernel) SetStats(s enforce.NodeStats) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.enter("SetStats")
	k.stats[s.ID] = s
}

// SetSockets replaces the result of Sockets.
func (k *Kernel) SetSockets(s ...enforce.SocketStats) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sockets = s
}

// Spec returns the node in force under id.
func (k *Kernel) Spec(id uint32) (enforce.NodeSpec, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	spec, ok := k.nodes[id]
	return spec, ok
}

func (k *Kernel) set(spec enforce.NodeSpec) {
	_ = k.enter("set")
	if _, ok := k.nodes[spec.ID]; !ok {
		stats := enforce.NodeStats{ID: spec.ID}
		if spec.Kind == enforce.KindTree && spec.Subject == 0 {
			stats.Parent = spec.Parent
		} else if spec.Kind == enforce.KindTree {
			stats.Processes = 1
			if joined := k.trees[int(spec.Subject)]; len(joined) > 0 {
				stats.Parent = joined[0]
			}
		}
		k.stats[spec.ID] = stats
	}
	k.nodes[spec.ID] = spec
	if spec.Store == 0 { // those of the pool may share a subject
		k.subjects[subjectOf(spec)] = spec.ID
	}
}

// SetNode implements enforce.Nodes. It refuses the same specs as a kernel would.
func (k *Kernel) SetNode(spec enforce.NodeSpec) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("SetNode"); err != nil {
		return err
	}
	if spec.ID == 0 || spec.ID >= enforce.MaxNodes {
		return fmt.Errorf("node id %d out of range", spec.ID)
	}
	if have, ok := k.nodes[spec.ID]; ok && (have.Kind != spec.Kind || have.Subject != spec.Subject && have.Store == 0) { // a node of the pool may get another subject
		return clash(spec, spec.ID)
	}
	if _, ok := k.nodes[spec.ID]; !ok && k.room != 0 && len(k.nodes) >= k.room {
		return fmt.Errorf("node %d: there is no room", spec.ID)
	}
	if id := k.subjects[subjectOf(spec)]; id != spec.ID && spec.Kind != enforce.KindDestination {
		if have, ok := k.nodes[id]; ok && subjectOf(have) == subjectOf(spec) && have.Store == 0 {
			return clash(spec, id)
		}
	}
	k.set(spec)
	return nil
}

// subject is what no two nodes may share.
type subject struct {
	kind    enforce.Kind
	key     uint64
	startNS uint64
}

func subjectOf(s enforce.NodeSpec) subject { return subject{s.Kind, s.Subject, s.StartBoottimeNS} }

func clash(spec enforce.NodeSpec, id uint32) error {
	return fmt.Errorf("node %d: kind %d, subject %d clashes with node %d", spec.ID, spec.Kind, spec.Subject, id)
}

// RemoveNode implements enforce.Nodes.
func (k *Kernel) RemoveNode(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("RemoveNode"); err != nil {
		return err
	}
	k.release(id)
	delete(k.nodes, id)
	delete(k.stats, id)
	return nil
}

// Inherits implements enforce.Nodes.
func (k *Kernel) Inherits(enforce.NodeSpec) bool { return false }

// Settle implements enforce.Nodes.
func (k *Kernel) Settle() error { return nil }

// Drain implements enforce.Nodes.
func (k *Kernel) Drain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.enter("Drain") // the real method only waits
}

// Nodes implements enforce.Nodes.
func (k *Kernel) Nodes() ([]enforce.NodeSpec, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Nodes"); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(k.nodes)), nil
}

// Stats implements enforce.Figures.
func (k *Kernel) Stats() ([]enforce.NodeStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Stats"); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(k.stats)), nil
}

// Sockets implements enforce.Figures.
func (k *Kernel) Sockets() ([]enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Sockets"); err != nil {
		return nil, err
	}
	return slices.Clone(k.sockets), nil
}

// SetStateless replaces the result of Stateless. If after is not nil, Stateless answers when it is closed.
func (k *Kernel) SetStateless(s enforce.StatelessStats, after <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stateless, k.slowRead = s, after
}

// Stateless implements enforce.Figures.
func (k *Kernel) Stateless() (enforce.StatelessStats, error) {
	k.mu.Lock()
	err, slow := k.enter("Stateless"), k.slowRead
	k.mu.Unlock()
	if slow != nil {
		<-slow
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stateless, err
}

// Unknown implements enforce.Figures.
func (k *Kernel) Unknown() (enforce.UnknownStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unknown, k.enter("Unknown")
}

// SetUnknown replaces the result of Unknown.
func (k *Kernel) SetUnknown(s enforce.UnknownStats) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown = s
}

// Look implements enforce.Figures.
func (k *Kernel) Look(id uint32) (enforce.NodeStats, []enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Look"); err != nil {
		return enforce.NodeStats{}, nil, err
	}
	var list []enforce.SocketStats
	for _, s := range k.sockets {
		if slices.Contains(s.Nodes, id) {
			list = append(list, s)
		}
	}
	return k.stats[id], list, nil
}

// SentBytes implements enforce.Paths.
func (k *Kernel) SentBytes(id uint32) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats[id].Bytes, k.enter("SentBytes")
}

// Maintain implements enforce.Events.
func (k *Kernel) Maintain() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.enter("Maintain")
}

// SetDestinations implements enforce.DestinationSetter. It refuses nodes that do not exist.
func (k *Kernel) SetDestinations(d enforce.Destinations) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("SetDestinations"); err != nil {
		return err
	}
	for _, u := range d.Uses {
		if spec, ok := k.nodes[u.Node]; u.Node != 0 && (!ok || spec.Kind != enforce.KindDestination) {
			return fmt.Errorf("node %d is none for a destination", u.Node)
		}
	}
	k.destinations = d
	return nil
}

// Destinations returns the argument of the last SetDestinations.
func (k *Kernel) Destinations() enforce.Destinations {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.destinations
}

// SetSubordinates implements enforce.Members.
func (k *Kernel) SetSubordinates(list []enforce.Subordinates) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.subordinates = slices.Clone(list)
	return k.enter("SetSubordinates")
}

// SetAdminGroup implements enforce.Requests.
func (k *Kernel) SetAdminGroup(gid *uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.admins = gid
	return k.enter("SetAdminGroup")
}

// AdminGroup returns the group that the daemon set last.
func (k *Kernel) AdminGroup() *uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.admins
}

// Subordinates returns the list that the daemon set last.
func (k *Kernel) Subordinates() []enforce.Subordinates {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.subordinates
}

// Attached implements enforce.Programs.
func (k *Kernel) Attached() map[string]bool { return map[string]bool{"nn_sockops": true} }

// Counters implements enforce.Programs.
func (k *Kernel) Counters() (map[string]uint64, error) {
	return map[string]uint64{"map_full": 0}, nil
}

// Close implements enforce.Kernel: the nodes stay.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = false
	return k.enter("Close")
}

// Down implements enforce.Kernel.
func (k *Kernel) Down() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Down"); err != nil {
		return err
	}
	clear(k.nodes)
	clear(k.stats)
	k.down, k.open = true, false
	return nil
}
