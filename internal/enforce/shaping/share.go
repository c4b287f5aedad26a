package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/due"
)

// shareQuiet is the number of samples without new packets after which a queue is unused.
const shareQuiet = 10

// share is what the last samples showed of a node's clock, and of its queue.
type share struct {
	progress due.Progress
	weight   uint32
	bytes    uint64 // bytes that had come into the queue, or moved in it
	quiet    int    // samples since that count changed
}

// due returns what the class may send, in IP bytes per second. It takes the clock and the class as they are now, and
// the limit.
func (s *share) due(clock bpf.Clock, k bpf.Class, limit uint64, nowNS uint64) float64 {
	went := s.progress.Went(clock, limit, nowNS)
	if k.Weight != 0 || s.weight == 0 {
		s.weight = max(k.Weight, 1)
		if k.Weight == 0 {
			s.weight = enforce.DefaultWeight
		}
	}
	return went.Due(clock, k, s.weight, 0, limit, nowNS)
}

// followShares keeps the queues' rates at what their classes are due, until stop is closed.
func (k *Kernel) followShares(what string, stop <-chan struct{}, adapt func() error) {
	tick := time.NewTicker(due.Look)
	defer tick.Stop()
	failing := ""
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		k.mu.Lock()
		err := adapt()
		k.mu.Unlock()
		if err != nil && err.Error() != failing {
			failing = err.Error()
			k.log.Warn("the share of "+what+" is not followed", "err", err)
		}
	}
}

// came reports whether something came into the queue recently, or moved in it. bytes counts that.
func (s *share) came(bytes uint64) bool {
	if bytes != s.bytes {
		s.bytes, s.quiet = bytes, 0
		return true
	}
	if s.quiet++; s.quiet > shareQuiet {
		s.progress.Forget()
		return false
	}
	return true
}

// look reads a node's clock and the class in it, and returns the rate that the class is due. known is false if nothing was
// charged yet.
func (s *share) look(base *bpf.Object, key bpf.ClassKey, limit uint64) (rate uint64, known bool, err error) {
	var clock bpf.Clock
	var k bpf.Class
	err = base.Clocks.Lookup(bpf.ClockKey{Node: key.Node, Direction: key.Direction}, &clock)
	if err == nil {
		err = base.Classes.Lookup(key, &k)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the clock of node %d: %w", key.Node, err)
	}
	return uint64(s.due(clock, k, limit, bpf.NowNS())), true, nil
}

// directionCeiling returns the lowest ceiling in one direction, 0 = none.
func directionCeiling(spec enforce.NodeSpec, d enforce.Direction) (rate uint64) {
	for _, limits := range spec.Ceilings {
		if r := limits[d].BytesPerSec; r != 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	return rate
}
