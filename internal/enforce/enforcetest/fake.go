// Package enforcetest holds a Kernel for tests that enforces nothing. It
// outlives the daemon that uses it, as pinned state does.
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
	mu         sync.Mutex
	nodes      map[uint32]enforce.NodeSpec
	stats      map[uint32]enforce.NodeStats
	sockets    []enforce.SocketStats
	unknown    enforce.UnknownStats
	fail       map[string]error
	calls      map[string]int
	events     chan struct{}
	down, open bool
}

// Open is for daemon.Options.OpenKernel.
func (k *Kernel) Open() (enforce.Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Open"); err != nil {
		return nil, err
	}
	k.open, k.down = true, false
	return k, nil
}

// enter counts the call and returns the error that it was told to fail with.
func (k *Kernel) enter(method string) error {
	if k.calls == nil {
		k.calls = make(map[string]int)
		k.nodes = make(map[uint32]enforce.NodeSpec)
		k.stats = make(map[uint32]enforce.NodeStats)
	}
	k.calls[method]++
	return k.fail[method]
}

// Fail makes a method return err until it is called with nil.
func (k *Kernel) Fail(method string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail == nil {
		k.fail = make(map[string]error)
	}
	k.fail[method] = err
}

// Calls returns how often a method was called.
func (k *Kernel) Calls(method string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[method]
}

// IsDown and IsOpen report the state that the daemon left.
func (k *Kernel) IsDown() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.down }

// IsOpen reports whether a daemon holds the kernel open.
func (k *Kernel) IsOpen() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.open }

// Put places a node as an earlier daemon would have.
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

// SetStats replaces what Stats says of one node.
func (k *Kernel) SetStats(s enforce.NodeStats) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.enter("SetStats")
	k.stats[s.ID] = s
}

// SetSockets replaces what Sockets says.
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
		if spec.Kind == enforce.KindTree {
			stats.Processes = 1
		}
		k.stats[spec.ID] = stats
	}
	k.nodes[spec.ID] = spec
}

// SetNode implements enforce.Kernel; it refuses what a kernel would.
func (k *Kernel) SetNode(spec enforce.NodeSpec) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("SetNode"); err != nil {
		return err
	}
	if spec.ID == 0 || spec.ID >= enforce.MaxNodes {
		return fmt.Errorf("node id %d out of range", spec.ID)
	}
	for id, have := range k.nodes {
		same := have.Kind == spec.Kind && have.Subject == spec.Subject
		if id == spec.ID && !same || id != spec.ID && same && have.StartBoottimeNS == spec.StartBoottimeNS {
			return fmt.Errorf("node %d: kind %d, subject %d clashes with node %d", spec.ID, spec.Kind, spec.Subject, id)
		}
	}
	k.set(spec)
	return nil
}

// RemoveNode implements enforce.Kernel.
func (k *Kernel) RemoveNode(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("RemoveNode"); err != nil {
		return err
	}
	delete(k.nodes, id)
	delete(k.stats, id)
	return nil
}

// Nodes implements enforce.Kernel.
func (k *Kernel) Nodes() ([]enforce.NodeSpec, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Nodes"); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(k.nodes)), nil
}

// Stats implements enforce.Kernel.
func (k *Kernel) Stats() ([]enforce.NodeStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Stats"); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(k.stats)), nil
}

// Sockets implements enforce.Kernel.
func (k *Kernel) Sockets() ([]enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Sockets"); err != nil {
		return nil, err
	}
	return slices.Clone(k.sockets), nil
}

// Unknown implements enforce.Kernel.
func (k *Kernel) Unknown() (enforce.UnknownStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unknown, k.enter("Unknown")
}

// SetUnknown replaces what Unknown says.
func (k *Kernel) SetUnknown(s enforce.UnknownStats) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown = s
}

// Look implements enforce.Kernel.
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

// Maintain implements enforce.Kernel.
func (k *Kernel) Maintain() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.enter("Maintain")
}

// Events implements enforce.Kernel.
func (k *Kernel) Events() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.events == nil {
		k.events = make(chan struct{}, 1)
	}
	return k.events
}

// Event makes Events deliver.
func (k *Kernel) Event() {
	k.Events()
	k.events <- struct{}{}
}

// Attached implements enforce.Kernel.
func (k *Kernel) Attached() map[string]bool { return map[string]bool{"nn_sockops": true} }

// Counters implements enforce.Kernel.
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
