package shaping

import (
	"errors"
	"time"

	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// The backlog of a lifted node leaves at once, before netnice removes its queues, so that no packet is lost. HTB still
// waits until the last packet is paid for at the previous rate. No other command waits for that.

const (
	drainTime = 300 * time.Millisecond
	drainPoll = 2 * time.Millisecond
)

// drains holds the lifted nodes whose queues still have a backlog.
type drains struct {
	until map[uint32]time.Time
	done  chan struct{} // closed when the last one has ended
}

// drain lets endDrains remove a node's queues as soon as they are empty. After the last one, endDrains also removes
// everything that queues need, unless other limits need it.
func (k *Kernel) drain(id uint32) {
	if k.drains.until == nil {
		k.drains = drains{until: map[uint32]time.Time{}, done: make(chan struct{})}
		go k.followDrains(k.drains.done)
	}
	k.drains.until[id] = time.Now().Add(drainTime)
}

func (k *Kernel) draining() bool { return len(k.drains.until) > 0 }

func (k *Kernel) followDrains(done chan struct{}) {
	defer close(done)
	for {
		time.Sleep(drainPoll)
		k.mu.Lock()
		over, err := k.closed, error(nil)
		if !over {
			over, err = k.endDrains(time.Now())
		}
		k.mu.Unlock()
		if err != nil {
			k.log.Warn("what a limit needed stays", "err", err)
		}
		if over {
			return
		}
	}
}

// endDrains removes the queues that are empty, or whose time is over. It returns true when none is left.
func (k *Kernel) endDrains(now time.Time) (over bool, err error) {
	var errs []error
	var received map[uint32]queuepair.Standing
	if k.on != nil {
		received, _ = k.on.pair.Standings() // classes that cannot be listed have gone
	}
	for id, until := range k.drains.until {
		if now.Before(until) && k.waits(id, received) {
			continue
		}
		delete(k.drains.until, id)
		errs = append(errs, k.discard(id))
	}
	if k.draining() {
		return false, errors.Join(errs...)
	}
	k.drains = drains{}
	return true, errors.Join(append(errs, k.settleSending(), k.settle())...)
}

// waits reports whether a lifted node has a backlog.
func (k *Kernel) waits(id uint32, received map[uint32]queuepair.Standing) bool {
	packets := uint32(0)
	if k.on != nil && k.on.nodes[id] == nil {
		packets += received[id].Packets
	}
	if k.send != nil && k.send.nodes[id] == nil {
		packets += k.send.waiting(id)
	}
	return packets > 0
}

// discard removes a node's queues, except those that the node needs again.
func (k *Kernel) discard(id uint32) error {
	var errs []error
	if k.on != nil && k.on.nodes[id] == nil {
		errs = append(errs, k.on.discard(id))
	}
	if k.send != nil && k.send.nodes[id] == nil {
		errs = append(errs, k.send.discard(id))
	}
	return errors.Join(errs...)
}

// Drain implements enforce.Nodes.
func (k *Kernel) Drain() {
	k.mu.Lock()
	done := k.drains.done
	k.mu.Unlock()
	if done != nil {
		<-done
	}
}
