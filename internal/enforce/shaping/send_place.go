package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// sendPlace is the per-namespace queue for non-TCP egress. Each network namespace has its own: a packet that left the
// namespace would lose its socket, and the sender would not wait.
type sendPlace struct {
	netdevice.Namespace
	s        *sender
	pair     queuepair.Pair
	entry    bpf.SendPlace // the entry that the datapath has
	entered  bool
	outlets  map[uint32]*outlet // by node
	devices  map[int]bpf.Device
	attached map[int]bool
	refused  int            // devices without a slot, as none is left
	rest     netdevice.Rest // starts a look at the devices that were left over
	// unasked is true if the queue was made for a caller of HoldQueue, and nothing has come into it.
	unasked bool
	// leaving is true if the program was detached from some devices already, as nobody uses the queue: see letGo.
	leaving bool
	// standingsOnce reads the backlog of each class, once per sample.
	standingsOnce func() (map[uint32]queuepair.Standing, error)
	watch         *netdevice.Watcher
}

// outlet is a node's class in one per-namespace queue.
type outlet struct {
	class   class  // the parameters that HTB has
	rate    uint64 // rate of the class in IP bytes/s
	mix     mix
	lanes   uint32        // minor number before those of the per-program classes, 0 = there is one class
	unlaned bool          // no minor numbers are left for more classes
	quantum uint32        // bytes that a per-program class of the least weight sends in a turn
	turn    [lanes]uint32 // bytes that each per-program class sends in a turn
	part    [lanes]part
	gate    *gate // holds packets that have left the class, nil = there is none

	backlogNS uint64         // bound of the backlog that was last requested, 0 = none
	backlog   [lanes]backlog // bound of each per-program class
	unbounded bool           // a bound could not be set or lifted: the next look tries again
	datagram  uint32         // bytes of the largest known datagram, with headers
}

// newPlace opens a network namespace for egress. It returns nil without an error if the namespace has gone.
func (s *sender) newPlace(ns uint32, path string) (*sendPlace, error) {
	p := &sendPlace{s: s, outlets: map[uint32]*outlet{}, devices: map[int]bpf.Device{}, attached: map[int]bool{}}
	if ns == s.home {
		nl, err := netlink.NewHandle()
		if err != nil {
			return nil, fmt.Errorf("open netlink: %w", err)
		}
		p.Namespace = netdevice.Home(ns, nl)
	} else {
		n, err := netdevice.Open(ns, path, func(owner uint32) (count int) {
			for _, o := range s.places {
				if o.Owner == owner {
					count++
				}
			}
			return count
		})
		if errors.Is(err, netdevice.ErrTooMany) {
			s.refused++
			s.failed[ns] = time.Now()
			return nil, nil //nolint:nilnil // the namespace counts as gone; packets too far ahead are dropped
		}
		if n == nil {
			return nil, err
		}
		p.Namespace = *n
	}
	p.pair.NL, p.pair.Alias = p.NL, s.alias
	return p, nil
}

// begin makes everything that a queue needs which was made just now, or by an earlier process. The classes exist before
// any packet comes.
func (p *sendPlace) begin() error {
	if err := p.ensurePair(); err != nil {
		return err
	}
	for id, n := range p.s.nodes {
		if err := p.set(id, n); err != nil {
			return err
		}
	}
	// A program takes packets some 10 to 30 ms before its attachment returns, after a grace period of the kernel's. In
	// that time the egress hook must not judge these packets.
	if err := p.s.expect(); err != nil {
		return err
	}
	if err := p.followDevices(); err != nil {
		return err
	}
	var err error
	p.watch, err = p.Watch(func() { p.s.changed(p) })
	return err
}

// ensurePair makes the pair where it is missing, also when another program has removed it while limits are in force.
func (p *sendPlace) ensurePair() error {
	found, err := p.pair.Find(p.entry.QueueIfindex, p.entry.ReturnIfindex)
	if err != nil {
		return err
	}
	if !found {
		p.pair.Queue, p.pair.Back = nil, nil
		if err := p.Within(p.pair.Make); err != nil {
			return err
		}
	}
	if err := attach(p.NL, p.pair.Back, p.s.obj.NnSendBack); err != nil {
		return err
	}
	if found && p.entered {
		return nil
	}
	p.entry = bpf.SendPlace{
		QueueIfindex: uint32(p.pair.Queue.Attrs().Index), ReturnIfindex: uint32(p.pair.Back.Attrs().Index), UsedNs: bpf.NowNS(),
	}
	if err := p.s.obj.Sender.Put(p.NS, &p.entry); err != nil {
		return fmt.Errorf("write which devices are netnice's: %w", err)
	}
	p.entered = true
	for id, o := range p.outlets {
		err := errors.Join(p.pair.SetRate(id, o.class.htb()), p.setLanes(id, o, true))
		if o.gate != nil {
			err = errors.Join(err, p.setRound(id, o))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set makes a node's class here, or changes its rate.
func (p *sendPlace) set(id uint32, n *outgoing) error {
	o, fresh := p.outlets[id], false
	if o == nil {
		o, fresh = &outlet{mix: freshMix(), quantum: leastQuantum}, true
		err := p.s.obj.Lanes.Lookup(p.key(id), &o.lanes) // an earlier process may have made them
		if err := gone(err); err != nil {
			return fmt.Errorf("read the lanes of node %d: %w", id, err)
		}
	}
	rate := n.began
	if !fresh && n.times != 0 { // this queue keeps its part of the limit
		rate = max(uint64(float64(o.rate)*n.times), 1)
	}
	c := o.classAt(rate, n)
	if err := p.pair.SetRate(id, c.htb()); err != nil {
		return err
	}
	if fresh {
		if err := p.openGate(id); err != nil { // an earlier process may have left a gate
			return err
		}
		if err := p.setLanes(id, o, true); err != nil {
			return err
		}
	}
	if err := p.boundAnew(id, o, n); err != nil {
		return err
	}
	err := p.s.obj.Outflows.Update(p.key(id), &bpf.Outflow{Key: p.key(id)}, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("count what node %d sends: %w", id, err)
	}
	o.class, o.rate = c, rate
	p.outlets[id] = o
	return nil
}

func (p *sendPlace) key(id uint32) bpf.OutflowKey { return bpf.OutflowKey{Netns: p.NS, Node: id} }

// empty lets the backlog of a node leave at once.
func (p *sendPlace) empty(id uint32) error {
	o := p.outlets[id]
	if o == nil {
		return nil
	}
	o.gate = nil // at that rate, a packet at the gate would go round without a pause
	if err := p.openGate(id); err != nil {
		return err
	}
	return p.pair.SetRate(id, class{rate: queuepair.Unlimited, bufferTicks: o.class.bufferTicks}.htb())
}

// waiting counts the packets of a node in the queue; with id 0 those of all nodes.
func (p *sendPlace) waiting(id uint32) (packets uint32, err error) {
	now, err := p.pair.Standings()
	for node, o := range p.outlets {
		if id == 0 || node == id {
			packets += o.standing(node, now).Packets
		}
	}
	return packets, err
}

// awaitEmpty waits until some queues hold no packet of a node, or of any node if id is 0; for drainTime at most.
func awaitEmpty(id uint32, places ...*sendPlace) {
	for until := time.Now().Add(drainTime); time.Now().Before(until); time.Sleep(drainPoll) {
		left := uint32(0)
		for _, p := range places {
			n, _ := p.waiting(id) // classes that cannot be listed have gone
			left += n
		}
		if left == 0 {
			return
		}
	}
}

// clear removes what set made.
func (p *sendPlace) clear(id uint32) error {
	o := p.outlets[id]
	if o == nil {
		return nil
	}
	delete(p.outlets, id)
	if o.lanes != 0 { // its minor numbers are free now
		for _, other := range p.outlets {
			other.unlaned = false
		}
	}
	errs := []error{p.openGate(id), gone(p.s.obj.Lanes.Delete(p.key(id)))}
	for _, minor := range o.below(id) {
		errs = append(errs, p.pair.RemoveBelow(id, minor))
	}
	return errors.Join(append(errs, p.pair.RemoveClass(id), gone(p.s.obj.Outflows.Delete(p.key(id))))...)
}

// close leaves everything in the kernel for a successor.
func (p *sendPlace) close() error { return p.Shut(&p.watch) }

// remove removes everything. The egress hook judges the sockets here again, once renew has told it that a queue has
// gone.
func (p *sendPlace) remove() error {
	there, err := p.Present()
	errs := []error{err}
	for index := range p.devices {
		errs = append(errs, p.leave(index, there(index)))
	}
	delete(p.s.places, p.NS)
	errs = append(errs, p.s.renew())
	if p.pair.Queue != nil {
		for id := range p.outlets {
			errs = append(errs, p.empty(id))
		}
		awaitEmpty(0, p)
	}
	errs = append(errs, p.pair.Remove())
	for id := range p.outlets {
		errs = append(errs, p.s.forgetOutflow(p.key(id)))
	}
	errs = append(errs, gone(p.s.obj.Sender.Delete(p.NS)), p.close())
	return errors.Join(errs...)
}
