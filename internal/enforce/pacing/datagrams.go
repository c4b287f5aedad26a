package pacing

// What is no TCP is charged to the clocks here, and needs a queue once it is more
// than its share: somebody else's, who is told so.

// datagrams is what this package knows of such a queue.
type datagrams struct {
	wanted chan struct{} // a limited socket needs a queue
	epoch  uint32        // of the queues, as the datapath knows it; 0 = none
}

// QueueWanted delivers a value whenever what a limited socket sends, and is no
// TCP, needs a queue; once a second while it is missing.
func (k *Kernel) QueueWanted() <-chan struct{} { return k.datagrams.wanted }

// SetQueues tells the datapath whether there are queues: where one takes a
// socket's packets it leaves them to it.
func (k *Kernel) SetQueues(there bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !there:
		k.datagrams.epoch = 0
	case k.datagrams.epoch == 0:
		// another one than any before, which sockets may remember
		k.datagrams.epoch = uint32(monotonicNS()>>20) | 1
	}
	return k.writePolicy()
}
