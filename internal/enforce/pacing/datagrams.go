package pacing

import (
	"fmt"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// What is no TCP is charged to the clocks here, and needs a queue once it is more
// than its share: somebody else's, who is told so.

// datagrams is what this package knows of such queues.
type datagrams struct {
	wanted chan bpf.QueueWanted
	epoch  uint32   // of the queues, as the datapath knows it; 0 = none
	gates  sync.Map // of bpf.OutflowKey: chan struct{}, who wants to know what leaves by a gate
}

// mostWanted bounds the namespaces in which a queue is wanted at a time: the rest
// asks again.
const mostWanted = 64

func newDatagrams() datagrams { return datagrams{wanted: make(chan bpf.QueueWanted, mostWanted)} }

func (d *datagrams) ask(wanted bpf.QueueWanted) {
	select {
	case d.wanted <- wanted:
	default:
	}
}

// QueueWanted delivers a value whenever what a limited socket sends, and is no
// TCP, needs a queue where it is; once a second while it is missing.
func (k *Kernel) QueueWanted() <-chan bpf.QueueWanted { return k.datagrams.wanted }

// Gate implements enforce.Kernel: nothing waits here.
func (k *Kernel) Gate(id uint32, _ time.Duration) (enforce.Gate, error) {
	return nil, fmt.Errorf("what node %d sends does not wait: %w", id, enforce.ErrNotSupported)
}

// HoldQueue implements enforce.Kernel: there are no queues here.
func (k *Kernel) HoldQueue(uint32) (release func(), err error) {
	return nil, fmt.Errorf("hold a queue: %w", enforce.ErrNotSupported)
}

// FollowGate delivers a value whenever something has left by a gate, until forget is called.
func (k *Kernel) FollowGate(key bpf.OutflowKey) (left <-chan struct{}, forget func()) {
	c := make(chan struct{}, 1)
	k.datagrams.gates.Store(key, c)
	return c, func() { k.datagrams.gates.CompareAndDelete(key, c) }
}

func (d *datagrams) moved(key bpf.OutflowKey) {
	c, ok := d.gates.Load(key)
	if !ok {
		return
	}
	select {
	case c.(chan struct{}) <- struct{}{}:
	default: // it is known already
	}
}

// SetQueues tells the datapath whether there are queues: where one takes a
// socket's packets it leaves them to it.
func (k *Kernel) SetQueues(there bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !there:
		k.datagrams.epoch = 0
	case k.datagrams.epoch == 0:
		k.datagrams.next()
	}
	return k.writePolicy()
}

// RenewQueues has the datapath ask anew which sockets' packets a queue takes: one
// of several queues has gone.
func (k *Kernel) RenewQueues() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.datagrams.epoch == 0 {
		return nil
	}
	k.datagrams.next()
	return k.writePolicy()
}

// next is another epoch than any before, which sockets may remember.
func (d *datagrams) next() {
	was := d.epoch
	if d.epoch = uint32(monotonicNS()>>20) | 1; d.epoch == was {
		d.epoch += 2
	}
}
