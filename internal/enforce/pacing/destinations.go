package pacing

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Two maps hold the rules for destinations. One finds the rules by the peer's address. The other finds their nodes
// by the trees that a process is in. See bpf/destination.h.

// destinations is the content of those maps.
type destinations struct {
	prefixes map[bpf.DestinationKey]bpf.Destination
	uses     map[bpf.DestinationUse]bpf.Hop
	from     []enforce.DestinationPrefix // source of the prefixes, nil = read from the map
	user     bool                        // some rule set is a user's
}

const bookBits = 32

func destinationKey(book uint32, prefix netip.Prefix) bpf.DestinationKey {
	bits := prefix.Bits()
	if prefix.Addr().Is4() {
		bits += 96
	}
	return bpf.DestinationKey{Prefixlen: uint32(bookBits + bits), Book: book, Addr: prefix.Masked().Addr().As16()}
}

// everybody reports whether some rule holds for processes without a tree.
func (d destinations) everybody() bool {
	for use := range d.uses {
		if use.Rule&bpf.RuleEverybody != 0 {
			return true
		}
	}
	return false
}

// with computes the new content of the map from a list of prefixes. The very same list is not computed twice.
func (d destinations) with(list []enforce.DestinationPrefix) (destinations, error) {
	next := destinations{prefixes: d.prefixes, uses: map[bpf.DestinationUse]bpf.Hop{}, from: list, user: d.user}
	if len(list) > 0 && len(list) == len(d.from) && &list[0] == &d.from[0] {
		return next, nil
	}
	next.prefixes, next.user = make(map[bpf.DestinationKey]bpf.Destination, len(list)), false
	for _, p := range list {
		if len(p.Rules) > enforce.MostDestinationRules {
			return next, fmt.Errorf("%d rules are for %v: there may be %d", len(p.Rules), p.Prefix, enforce.MostDestinationRules)
		}
		var value bpf.Destination
		for i, r := range p.Rules {
			value.Entries[i] = bpf.DestinationEntry{Rule: r.Rule, PortFrom: r.PortFrom, PortTo: r.PortTo}
		}
		next.prefixes[destinationKey(p.Book, p.Prefix)] = value
		next.user = next.user || p.Book != bpf.BookAdmin
	}
	if maps.Equal(next.prefixes, d.prefixes) {
		next.prefixes = d.prefixes
	}
	return next, nil
}

// same reports whether both have the identical map of prefixes. Equal content is not enough.
func (d destinations) same(o destinations) bool {
	return reflect.ValueOf(d.prefixes).Pointer() == reflect.ValueOf(o.prefixes).Pointer()
}

func (k *Kernel) readDestinations() error {
	k.to = destinations{prefixes: map[bpf.DestinationKey]bpf.Destination{}, uses: map[bpf.DestinationUse]bpf.Hop{}}
	var key bpf.DestinationKey
	var d bpf.Destination
	it := k.obj.Destinations.Iterate()
	for it.Next(&key, &d) {
		k.to.prefixes[key] = d
		k.to.user = k.to.user || key.Book != bpf.BookAdmin
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

// SetDestinations implements enforce.DestinationSetter.
func (k *Kernel) SetDestinations(d enforce.Destinations) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, err := k.to.with(d.Prefixes)
	if err != nil {
		return err
	}
	for _, u := range d.Uses {
		hop := bpf.Hop{Node: u.Node, Generation: k.nodes[u.Node].Generation}
		next.uses[bpf.DestinationUse{Rule: u.Rule, Scope: u.Scope}] = hop
	}
	if next.same(k.to) && maps.Equal(next.uses, k.to.uses) {
		k.to.from = next.from
		return nil
	}
	return k.putDestinations(next)
}

// putDestinations writes new entries before it removes old ones, and then begins a new epoch. The results that the
// datapath remembers by the previous rules are valid for the previous epoch only (bpf/destination_memo.h). Therefore it
// begins a new epoch also if some entries could not be written.
func (k *Kernel) putDestinations(next destinations) error {
	some := len(next.uses) > 0
	if some {
		if err := errors.Join(k.obj.Attach(false), k.obj.AttachDestinations(true)); err != nil {
			return err
		}
	}
	scopes := map[uint32]bool{}
	all := !next.same(k.to)
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
	if all {
		errs = append(errs, k.putPrefixes(next, was))
	}
	for use := range was.uses {
		if _, ok := next.uses[use]; !ok {
			note(use)
			errs = append(errs, gone(k.obj.DestinationUses.Delete(use)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(fmt.Errorf("write the destinations: %w", err), k.readDestinations(), k.putPolicy())
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

func (k *Kernel) putPrefixes(next, was destinations) error {
	var errs []error
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
	return errors.Join(errs...)
}

// destined makes open sockets obey: all of them, or those of some trees.
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
	if err := k.adoptFiles(members); err != nil {
		return err
	}
	return k.adoptConnections(all && k.to.everybody())
}

// removeDestination lifts a node that SetDestinations no longer names.
func (k *Kernel) removeDestination(id uint32, n bpf.Node) error {
	delete(k.nodes, id)
	n.Flags &^= bpf.NodeLive
	if err := k.obj.Nodes.Put(id, &n); err != nil {
		return fmt.Errorf("write node %d: %w", id, err)
	}
	if n.Flags&bpf.NodeEach != 0 {
		met, err := k.met(id, n.Generation)
		if err := errors.Join(err, forget(k.obj.PeersMet, maps.Keys(met))); err != nil {
			return err
		}
	}
	unused, err := k.unstore(id, n)
	err = errors.Join(err, k.writePolicy())
	if !unused {
		err = errors.Join(err, k.adoptConnections(false))
	}
	if err := errors.Join(err, k.clear(id, n.Generation)); err != nil {
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
