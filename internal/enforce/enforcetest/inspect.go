package enforcetest

import (
	"errors"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// SetLooks replaces the sockets that Inspect chooses from.
func (k *Kernel) SetLooks(list ...enforce.SocketLook) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks = list
}

// Inspect implements enforce.Figures.
func (k *Kernel) Inspect(wanted func(inode uint64, pid uint32) bool) (out []enforce.SocketLook, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Inspect"); err != nil {
		return nil, err
	}
	for _, s := range k.looks {
		if wanted(s.Inode, s.PID) {
			out = append(out, s)
		}
	}
	return out, nil
}

// SetPeers replaces the result of Peers for every node.
func (k *Kernel) SetPeers(list ...enforce.Peer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.peers = list
}

// Peers implements enforce.Paths.
func (k *Kernel) Peers(uint32) ([]enforce.Peer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.peers), k.enter("Peers")
}

// Probes implements enforce.Paths.
func (k *Kernel) Probes(int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.enter("Probes")
}

// SlowQueues delays the creation of queues until the channel is closed.
func (k *Kernel) SlowQueues(until <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = until
}

// HoldQueue implements enforce.Paths.
func (k *Kernel) HoldQueue(netns uint32) (release func(), err error) {
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	if slow != nil {
		<-slow
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("HoldQueue"); err != nil {
		return nil, err
	}
	k.held[netns]++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.held[netns]--
	}, nil
}

// HeldQueues counts the holders of a network namespace's queue.
func (k *Kernel) HeldQueues(netns uint32) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[netns]
}

// Gate implements enforce.Paths.
func (k *Kernel) Gate(uint32, time.Duration) (enforce.Gate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return nil, errors.Join(k.enter("Gate"), enforce.ErrNotSupported)
}

// SetQueues replaces the result of Queues.
func (k *Kernel) SetQueues(list ...enforce.Queue) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.packetQueues = list
}

// Queues implements enforce.Figures.
func (k *Kernel) Queues() ([]enforce.Queue, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.packetQueues, k.enter("Queues")
}
