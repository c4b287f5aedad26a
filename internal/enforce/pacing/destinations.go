package pacing

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Rules for destinations are two maps: one finds the rules by the peer's address, the
// other their nodes by the trees that a process is in. See bpf/destination.h.

// destinations is what those maps hold.
type destinations struct {
	prefixes map[bpf.DestinationKey]bpf.Destination
	uses     map[bpf.DestinationUse]bpf.Hop
}

const bookBits = 32

func destinationKey(book uint32, prefix netip.Prefix) bpf.DestinationKey {
	bits := prefix.Bits()
	if prefix.Addr().Is4() {
		bits += 96
	}
	return bpf.DestinationKey{Prefixlen: uint32(bookBits + bits), Book: book, Addr: prefix.Masked().Addr().As16()}
}

// everybody reports whether a rule holds without a tree of processes, and whether one
// of a user's does.
func (d destinations) everybody() (some, user bool) {
	for use := range d.uses {
		some = some || use.Rule&bpf.RuleEverybody != 0
	}
	if some {
		for key := range d.prefixes {
			user = user || key.Book != bpf.BookAdmin
		}
	}
	return some, user
}

func (k *Kernel) readDestinations() error {
	k.to = destinations{map[bpf.DestinationKey]bpf.Destination{}, map[bpf.DestinationUse]bpf.Hop{}}
	var key bpf.DestinationKey
	var d bpf.Destination
	it := k.obj.Destinations.Iterate()
	for it.Next(&key, &d) {
		k.to.prefixes[key] = d
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the destinations: %w", err)
	}
	var use bpf.DestinationUse
	var hop bpf.Hop
	it = k.obj.DestinationUses.Iterate()
	for it.Next(&use, &hop) {
		k.to.uses[use] = hop
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read where destinations count: %w", err)
	}
	return nil
}

// SetDestinations implements enforce.Kernel.
func (k *Kernel) SetDestinations(d enforce.Destinations) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := destinations{map[bpf.DestinationKey]bpf.Destination{}, map[bpf.DestinationUse]bpf.Hop{}}
	for _, p := range d.Prefixes {
		if len(p.Rules) > enforce.MostDestinationRules {
			return fmt.Errorf("%d rules are for %v: there may be %d", len(p.Rules), p.Prefix, enforce.MostDestinationRules)
		}
		var value bpf.Destination
		for i, r := range p.Rules {
			value.Entries[i] = bpf.DestinationEntry{Rule: r.Rule, PortFrom: r.PortFrom, PortTo: r.PortTo}
		}
		next.prefixes[destinationKey(p.Book, p.Prefix)] = value
	}
	for _, u := range d.Uses {
		hop := bpf.Hop{Node: u.Node, Generation: k.nodes[u.Node].Generation}
		next.uses[bpf.DestinationUse{Rule: u.Rule, Scope: u.Scope}] = hop
	}
	if maps.Equal(next.prefixes, k.to.prefixes) && maps.Equal(next.uses, k.to.uses) {
		return nil
	}
	return k.putDestinations(next)
}

// putDestinations writes what is new before what is old goes.
func (k *Kernel) putDestinations(next destinations) error {
	some := len(next.uses) > 0
	if some {
		if err := errors.Join(k.obj.Attach(false), k.obj.AttachDestinations(true)); err != nil {
			return err
		}
	}
	scopes := map[uint32]bool{}
	all := !maps.Equal(next.prefixes, k.to.prefixes)
	was := k.to
	k.to = next
	var errs []error
	note := func(use bpf.DestinationUse) {
		scopes[use.Scope] = true
		all = all || use.Rule&bpf.RuleEverybody != 0
	}
	for use, hop := range next.uses {
		if old, ok := was.uses[use]; !ok || old != hop {
			note(use)
			errs = append(errs, k.obj.DestinationUses.Put(use, hop))
		}
	}
	for key, d := range next.prefixes {
		if old, ok := was.prefixes[key]; !ok || old != d {
			errs = append(errs, k.obj.Destinations.Put(key, &d))
		}
	}
	for key := range was.prefixes {
		if _, ok := next.prefixes[key]; !ok {
			errs = append(errs, gone(k.obj.Destinations.Delete(key)))
		}
	}
	for use := range was.uses {
		if _, ok := next.uses[use]; !ok {
			note(use)
			errs = append(errs, gone(k.obj.DestinationUses.Delete(use)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(fmt.Errorf("write the destinations: %w", err), k.readDestinations())
	}
	if err := k.putPolicy(); err != nil {
		return err
	}
	if err := k.destined(all, scopes); err != nil {
		return err
	}
	if !some {
		return k.obj.AttachDestinations(false)
	}
	return nil
}

// destined makes what is open obey: everybody's sockets, or those of some trees.
func (k *Kernel) destined(all bool, scopes map[uint32]bool) error {
	members := []uint32{}
	for id := range scopes {
		if all {
			break
		}
		list, err := k.members(id)
		if err != nil {
			return err
		}
		members = append(members, list...)
	}
	if all {
		members = nil
	}
	if err := k.obj.AdoptFiles(members); err != nil {
		return err
	}
	everybody, _ := k.to.everybody()
	return k.adoptConnections(everybody && all)
}

// removeDestination lifts a node that SetDestinations does not name any more.
func (k *Kernel) removeDestination(id uint32, n bpf.Node) error {
	delete(k.nodes, id)
	n.Flags &^= bpf.NodeLive
	if err := k.obj.Nodes.Put(id, &n); err != nil {
		return fmt.Errorf("write node %d: %w", id, err)
	}
	if err := errors.Join(k.writePolicy(), k.adoptConnections(false), k.clear(id, n.Generation)); err != nil {
		return err
	}
	if len(k.nodes) == 0 {
		return k.lastNodeWent()
	}
	k.cover.stale = true
	return nil
}

func gone(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
