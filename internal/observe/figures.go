package observe

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// Sample is one reading of the kernel side.
type Sample struct {
	At       time.Time
	Nodes    map[uint32]enforce.NodeStats
	Unknown  enforce.UnknownStats
	Sockets  []enforce.SocketStats
	Backlogs map[uint32]Backlog // by node
	// Stateless counts the sockets without room for state by node. Only Figures reads them.
	Stateless map[uint32]int
}

// Backlog is what waits at one node.
type Backlog struct {
	Sockets int
	Waiting int // sockets with data that wait
	Bytes   uint64
	WaitNS  uint64
}

// sampler reads the kernel side, not more often than its callers need.
type sampler struct {
	kernel   Figures
	resolver *identity.Resolver
	// changes counts the changes after which a reading is outdated. It is no part of the lock's, under which the kernel
	// side is read. A change does not wait for that.
	changes atomic.Uint64

	mu   sync.Mutex
	last Sample
	seen uint64 // changes when the last reading began
}

// fresh is the greatest age of an answer to a caller.
const fresh = 100 * time.Millisecond

// stats reads the counters only.
func (s *sampler) stats() (Sample, error) {
	stats, err := s.kernel.Stats()
	if err != nil {
		return Sample{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	now := Sample{At: time.Now(), Nodes: make(map[uint32]enforce.NodeStats, len(stats))}
	for _, st := range stats {
		now.Nodes[st.ID] = st
	}
	if now.Unknown, err = s.kernel.Unknown(); err != nil {
		return Sample{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	return now, nil
}

// full reads counters and sockets; callers share a reading.
func (s *sampler) full() (Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := s.changes.Load()
	if changes == s.seen && time.Since(s.last.At) < fresh {
		return s.last, nil
	}
	now, err := s.stats()
	if err != nil {
		return Sample{}, err
	}
	if now.Sockets, err = s.kernel.Sockets(); err != nil {
		return Sample{}, fmt.Errorf("read the kernel side's sockets: %w", err)
	}
	stateless, err := s.stateless()
	if err != nil {
		return Sample{}, err
	}
	now.Stateless = stateless.OnNodes()
	now.countBacklogs()
	s.last, s.seen = now, changes
	return now, nil
}

// of reads the counters and sockets of one node.
func (s *sampler) of(id uint32) (Sample, error) {
	stats, sockets, err := s.kernel.Look(id)
	if err != nil {
		return Sample{}, fmt.Errorf("read the kernel side's counters of node %d: %w", id, err)
	}
	now := Sample{At: time.Now(), Nodes: map[uint32]enforce.NodeStats{id: stats}, Sockets: sockets}
	now.countBacklogs()
	return now, nil
}

// countBacklogs counts the backlog at each node.
func (s *Sample) countBacklogs() {
	s.Backlogs = make(map[uint32]Backlog)
	for _, sock := range s.Sockets {
		for _, id := range sock.Nodes {
			b := s.Backlogs[id]
			b.Sockets++
			if sock.WaitNS > 0 && sock.UnsentBytes > 0 {
				b.Waiting++
				b.Bytes += sock.UnsentBytes
				b.WaitNS = max(b.WaitNS, sock.WaitNS)
			}
			s.Backlogs[id] = b
		}
	}
}

// Figures returns a reading of the counters and sockets of all nodes, made after the last change.
func (o *Observer) Figures() (Sample, error) { return o.sampler.full() }

// FiguresOf returns a reading of the counters and sockets of one node.
func (o *Observer) FiguresOf(id uint32) (Sample, error) { return o.sampler.of(id) }

// Outdate makes the next caller of Figures get a new reading. It never waits.
func (o *Observer) Outdate() { o.sampler.changes.Add(1) }
