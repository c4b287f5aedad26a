package shaping

import (
	"fmt"
	"sync"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/netnamespace"
)

// holds counts the callers of HoldQueue by network namespace. Their queues stay, used or not.
type holds map[uint32]int

// HoldQueue implements enforce.Paths. Where it can make no queue, the egress hook asks for one when it needs one.
func (k *Kernel) HoldQueue(netns uint32) (release func(), err error) {
	if netns == 0 {
		if netns, err = netnamespace.Of("thread-self"); err != nil {
			return nil, fmt.Errorf("hold a queue: %w", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	there := k.sendingAt(netns) != nil
	if err := k.startSending(&bpf.QueueWanted{Netns: netns}); err != nil {
		return nil, fmt.Errorf("hold a queue: %w", err)
	}
	if p := k.sendingAt(netns); p != nil && !there {
		p.unasked = true
	}
	k.holds[netns]++
	return sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.holds[netns]--; k.holds[netns] == 0 {
			delete(k.holds, netns)
		}
	}), nil
}
