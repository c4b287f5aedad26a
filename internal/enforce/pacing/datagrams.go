package pacing

import (
	"sync"

	"github.com/netnice/netnice/internal/bpf"
)

// This package charges non-TCP egress to the clocks. A sender above its share needs a queue, which another package
// owns. The channel of QueueWanted tells that package.

// datagrams is what this package knows of the queues for non-TCP egress.
type datagrams struct {
	wanted chan bpf.QueueWanted
	epoch  uint32   // epoch of the queues in the policy; 0 = there are no queues
	gates  sync.Map // key: bpf.OutflowKey; value: chan struct{} of a reader that waits for departures by a credit gate
}

// mostWanted bounds the namespaces that wait for a queue at a time. The datapath asks again for the rest.
const mostWanted = 64

func newDatagrams() datagrams { return datagrams{wanted: make(chan bpf.QueueWanted, mostWanted)} }

func (d *datagrams) ask(wanted bpf.QueueWanted) {
	select {
	case d.wanted <- wanted:
	default:
	}
}

// QueueWanted delivers a value whenever non-TCP egress of a limited socket needs a queue in its namespace. The
// datapath repeats that once a second while the queue is missing.
func (k *Kernel) QueueWanted() <-chan bpf.QueueWanted { return k.datagrams.wanted }

// FollowGate delivers a value whenever a packet has left by a credit gate, until the caller calls forget.
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
	default: // the reader has a value to read already
	}
}

// SetQueues tells the datapath whether there are queues. A queue that takes a socket's packets also limits them;
// the egress hook then lets them pass.
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

// RenewQueues makes the datapath ask again which sockets' packets a queue takes. Callers use it after one of
// several queues has gone.
func (k *Kernel) RenewQueues() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.datagrams.epoch == 0 {
		return nil
	}
	k.datagrams.next()
	return k.writePolicy()
}

// next chooses an epoch that differs from every earlier one, since sockets may remember those.
func (d *datagrams) next() {
	was := d.epoch
	if d.epoch = uint32(bpf.NowNS()>>20) | 1; d.epoch == was {
		d.epoch += 2
	}
}
