package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/netnamespace"
)

const (
	// sendIdle is how long the queue of a network namespace stays without packets before it is removed. The queue of
	// the daemon's own namespace stays (see look). sendLeft is that time where no process lives in the namespace, since
	// the files that the daemon has open of a namespace keep it alive.
	sendIdle = 10 * time.Second
	sendLeft = time.Second
)

// openPlace makes a queue in a network namespace, where the process tgid asked for it. It makes none if there is one,
// or if an attempt failed within the last sendRetry.
func (s *sender) openPlace(ns, tgid uint32) error {
	if p := s.places[ns]; p != nil {
		return p.stay()
	}
	if ns == 0 {
		return nil
	}
	if at, failed := s.failed[ns]; failed && time.Since(at) < sendRetry {
		return nil
	}
	delete(s.failed, ns)
	p, err := s.newPlace(ns, fmt.Sprintf("/proc/%d/ns/net", tgid))
	if p == nil && err == nil { // the process lives in another namespace than its socket
		if path := netnamespace.PathOf(ns); path != "" {
			p, err = s.newPlace(ns, path)
		}
	}
	if err == nil && p != nil {
		s.places[ns] = p
		if err = p.begin(); err != nil {
			err = errors.Join(err, p.remove())
		}
	}
	if err != nil {
		s.failed[ns] = time.Now()
	}
	return err
}

// look removes the queues of network namespaces in which no limited program sends more than its share any more, unless
// a caller holds them. It removes the queue of the daemon's own namespace only if nothing ever came into it.
func (s *sender) look(by holds) error {
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.look(by))
	}
	for ns, at := range s.failed {
		if time.Since(at) > sendRetry {
			delete(s.failed, ns)
		}
	}
	return errors.Join(errs...)
}

// look does the same for one queue.
func (p *sendPlace) look(by holds) error {
	if p.IsHome() && !p.unasked {
		return nil
	}
	now := bpf.NowNS()
	idle, err := p.idle(now)
	if err != nil {
		return err
	}
	if p.unasked = p.unasked && idle >= time.Duration(now-p.entry.UsedNs); p.IsHome() && !p.unasked {
		return p.stay()
	}
	if !p.IsHome() && idle > sendLeft && netnamespace.PathOf(p.NS) == "" {
		return p.letGo()
	}
	if idle <= sendIdle || by[p.NS] > 0 {
		return p.stay()
	}
	waiting, err := p.waiting(0)
	if err == nil && waiting > 0 {
		return p.stay()
	}
	return errors.Join(err, p.letGo())
}

// letGo removes a queue that nobody uses, in turns: to leave a device takes a grace period of the kernel's, as to enter
// one does. The egress hook judges packets that leave by such a device as if there was no queue.
func (p *sendPlace) letGo() error {
	there, err := p.Present()
	errs := []error{err}
	began, left := time.Now(), 0
	for index := range p.devices {
		if left > 0 && time.Since(began) > p.s.turnUp {
			p.leaving = true
			p.rest.Look(func() { p.s.changed(p) })
			return errors.Join(append(errs, p.s.renew())...)
		}
		errs = append(errs, p.leave(index, there(index)))
		left++
	}
	return errors.Join(append(errs, p.remove())...)
}

// stay enters the devices again that were left, because the queue is used after all. After an error, the next look or
// the next request for the queue tries again.
func (p *sendPlace) stay() error {
	if !p.leaving {
		return nil
	}
	p.entry.UsedNs = bpf.NowNS() // otherwise the queue would still be idle
	if err := p.s.obj.Sender.Put(p.NS, &p.entry); err != nil {
		return fmt.Errorf("keep a queue: %w", err)
	}
	if err := p.followDevices(); err != nil {
		return err
	}
	p.leaving = false
	return nil
}

// idle returns how long nothing has moved in the queue.
func (p *sendPlace) idle(nowNS uint64) (time.Duration, error) {
	var entry bpf.SendPlace
	if err := p.s.obj.Sender.Lookup(p.NS, &entry); err != nil {
		return 0, fmt.Errorf("look at network namespace %d: %w", p.NS, err)
	}
	return time.Duration(int64(nowNS - entry.UsedNs)), nil
}

// resume takes over the queues that an earlier process made. Where a queue has gone, the next request makes a new one.
func (s *sender) resume() error {
	entries := map[uint32]bpf.SendPlace{}
	var ns uint32
	var entry bpf.SendPlace
	it := s.obj.Sender.Iterate()
	for it.Next(&ns, &entry) {
		entries[ns] = entry
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the network namespaces: %w", err)
	}
	var lost []uint32
	for ns, entry := range entries {
		p, err := s.newPlace(ns, netnamespace.PathOf(ns))
		if err != nil {
			return err
		}
		if p == nil {
			lost = append(lost, ns)
			continue
		}
		found, err := p.pair.Find(entry.QueueIfindex, entry.ReturnIfindex)
		if err != nil {
			return errors.Join(err, p.close())
		}
		p.entry, p.entered, s.places[ns] = entry, found, p
		p.unasked = found && !p.pair.Used()
		if !found {
			p.pair.Queue, p.pair.Back = nil, nil
			lost = append(lost, ns)
		}
	}
	if err := s.readDevices(); err != nil {
		return err
	}
	var errs []error
	for _, ns := range lost {
		if p := s.places[ns]; p != nil {
			errs = append(errs, p.remove())
		}
		errs = append(errs, s.forget(ns))
	}
	return errors.Join(append(errs, s.unpinLost(), s.renew())...)
}

// forget removes the entries of a network namespace that cannot be entered any more.
func (s *sender) forget(ns uint32) error {
	errs := []error{gone(s.obj.Sender.Delete(ns))}
	var lost []bpf.OutflowKey
	var key bpf.OutflowKey
	var f bpf.Outflow
	it := s.obj.Outflows.Iterate()
	for it.Next(&key, &f) {
		if key.Netns == ns {
			lost = append(lost, key)
		}
	}
	errs = append(errs, it.Err())
	for _, key := range lost {
		errs = append(errs, s.forgetOutflow(key))
	}
	return errors.Join(errs...)
}

func (s *sender) forgetOutflow(key bpf.OutflowKey) error {
	return errors.Join(gone(s.obj.Lanes.Delete(key)), gone(s.obj.Outflows.Delete(key)))
}

// readDevices learns which devices an earlier process had entered.
func (s *sender) readDevices() error {
	var key bpf.DeviceKey
	var d bpf.Device
	lost := map[bpf.DeviceKey]bpf.Device{}
	it := s.obj.SendDevices.Iterate()
	for it.Next(&key, &d) {
		if p := s.places[key.Netns]; p != nil {
			p.devices[int(key.Ifindex)] = d
			s.slots.Take(d.Slot)
		} else {
			lost[key] = d
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the devices: %w", err)
	}
	var errs []error
	for key, d := range lost {
		errs = append(errs, s.obj.SendSlots.Put(d.Slot, &bpf.SendSlot{}), gone(s.obj.SendDevices.Delete(key)), s.notQueued(key))
	}
	return errors.Join(errs...)
}

// unpinLost detaches the programs in network namespaces that have no queue.
func (s *sender) unpinLost() error {
	known := map[string]bool{}
	for _, p := range s.places {
		for index := range p.devices {
			known[p.devicePin(index)] = true
		}
	}
	var errs []error
	for _, name := range s.obj.Stale(sendPrefix) {
		if !known[name] {
			errs = append(errs, s.obj.Unpin(name))
		}
	}
	return errors.Join(errs...)
}
