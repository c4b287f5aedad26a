package daemon

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// sample is one reading of the kernel side.
type sample struct {
	at      time.Time
	nodes   map[uint32]enforce.NodeStats
	unknown enforce.UnknownStats
	sockets []enforce.SocketStats
	queues  map[uint32]queue
}

// queue is the backlog at one node.
type queue struct {
	sockets int
	waiting int
	bytes   uint64
	waitNS  uint64
}

// sampler reads the kernel side, not more often than its callers need.
type sampler struct {
	kernel enforce.Kernel

	mu      sync.Mutex
	last    sample
	failing string // the failure that was logged last
}

// fresh is the greatest age of an answer to a caller.
const fresh = 100 * time.Millisecond

// stats reads the counters only.
func (s *sampler) stats() (sample, error) {
	stats, err := s.kernel.Stats()
	if err != nil {
		return sample{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	now := sample{at: time.Now(), nodes: make(map[uint32]enforce.NodeStats, len(stats))}
	for _, st := range stats {
		now.nodes[st.ID] = st
	}
	if now.unknown, err = s.kernel.Unknown(); err != nil {
		return sample{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	return now, nil
}

// full reads counters and sockets; callers share a reading.
func (s *sampler) full() (sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last.at) < fresh {
		return s.last, nil
	}
	now, err := s.stats()
	if err != nil {
		return sample{}, err
	}
	if now.sockets, err = s.kernel.Sockets(); err != nil {
		return sample{}, fmt.Errorf("read the kernel side's sockets: %w", err)
	}
	now.line()
	s.last = now
	return now, nil
}

// of reads the counters and sockets of one node.
func (s *sampler) of(id uint32) (sample, error) {
	stats, sockets, err := s.kernel.Look(id)
	if err != nil {
		return sample{}, fmt.Errorf("read the kernel side's counters of node %d: %w", id, err)
	}
	now := sample{at: time.Now(), nodes: map[uint32]enforce.NodeStats{id: stats}, sockets: sockets}
	now.line()
	return now, nil
}

// line counts the backlog at each node.
func (s *sample) line() {
	s.queues = make(map[uint32]queue)
	for _, sock := range s.sockets {
		for _, id := range sock.Nodes {
			q := s.queues[id]
			q.sockets++
			if sock.WaitNS > 0 && sock.UnsentBytes > 0 {
				q.waiting++
				q.bytes += sock.UnsentBytes
				q.waitNS = max(q.waitNS, sock.WaitNS)
			}
			s.queues[id] = q
		}
	}
}

// outdate makes the next caller get a new reading.
func (s *sampler) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = sample{}
}

// complain logs a failure once while it lasts.
func (s *sampler) complain(log *slog.Logger, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := err.Error(); text != s.failing {
		s.failing = text
		log.Warn("the limits were not looked after", "err", err)
	}
}
