package pacing

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// A limit for each address by itself has nodes in store, which the kernel side gives to
// addresses that it meets: nn_each_own.

// Peers implements enforce.Kernel.
func (k *Kernel) Peers(id uint32) ([]enforce.Peer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.obj.ListEverySocket()
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	seen := map[enforce.Peer]bool{}
	n, ok := k.nodes[id]
	for _, r := range list {
		if ok && r.State.PeerKnown != 0 && slices.Contains(r.State.Path[:], bpf.Hop{Node: id, Generation: n.Generation}) {
			seen[enforce.Peer{Address: netip.AddrFrom16(r.State.Peer).Unmap(), Netns: r.Netns}] = true
		}
	}
	if ok && n.Flags&bpf.NodeEach != 0 {
		if err := k.peersMet(id, seen); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Keys(seen)), nil
}

// peersMet adds what the kernel side has noted. What has no node, or one that is in store no
// more, is taken out. Stored nodes that nobody got, and that are in no slot, go back.
func (k *Kernel) peersMet(id uint32, seen map[enforce.Peer]bool) error {
	given := map[uint32]bool{}
	var done []bpf.PeerMet
	var met bpf.PeerMet
	var own bpf.Hop
	it := k.obj.PeersMet.Iterate()
	for it.Next(&met, &own) {
		if met.Node != id || met.Generation != k.nodes[id].Generation {
			continue
		}
		p := enforce.Peer{Address: netip.AddrFrom16(met.Peer).Unmap()}
		if n, ok := k.at(own); ok && n.Flags&bpf.NodeStored != 0 {
			p.Node = own.Node
			given[own.Node] = true
		} else {
			done = append(done, met)
		}
		seen[p] = true
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // the rest comes the next time
		return fmt.Errorf("read the addresses that were met: %w", err)
	}
	for _, met := range done {
		if err := gone(k.obj.PeersMet.Delete(met)); err != nil {
			return fmt.Errorf("take an address out that was met: %w", err)
		}
	}
	return k.putBack(id, given)
}

// at is the node of a hop, if that is the one that is meant.
func (k *Kernel) at(h bpf.Hop) (bpf.Node, bool) {
	n, ok := k.nodes[h.Node]
	return n, ok && n.Generation == h.Generation
}

// slots lists what is in store for a node, by the slot.
func (k *Kernel) slots(each uint32) (map[uint32]bpf.Hop, error) {
	out := map[uint32]bpf.Hop{}
	at := bpf.Stored{Node: each, Generation: k.nodes[each].Generation}
	for at.Slot = range uint32(bpf.StoreSize) {
		var hop bpf.Hop
		err := k.obj.Stored.Lookup(at, &hop)
		switch {
		case err == nil:
			out[at.Slot] = hop
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return nil, fmt.Errorf("read what is in store for node %d: %w", each, err)
		}
	}
	return out, nil
}

// store puts a node that is for it into the store.
func (k *Kernel) store(id uint32, n bpf.Node) error {
	if n.Flags&bpf.NodeStored == 0 {
		return nil
	}
	full, err := k.slots(n.Parent)
	if err != nil {
		return err
	}
	at := bpf.Stored{Node: n.Parent, Generation: k.nodes[n.Parent].Generation}
	for at.Slot = range uint32(bpf.StoreSize) {
		if _, taken := full[at.Slot]; taken {
			continue
		}
		if err := k.obj.Stored.Put(at, bpf.Hop{Node: id, Generation: n.Generation}); err != nil {
			return fmt.Errorf("put node %d in store: %w", id, err)
		}
		return nil
	}
	return fmt.Errorf("node %d: there are %d in store for node %d", id, bpf.StoreSize, n.Parent)
}

// unstore takes a node out of the store, and reports whether it was there.
func (k *Kernel) unstore(id uint32, n bpf.Node) (found bool, err error) {
	delete(k.lost, id)
	if n.Flags&bpf.NodeStored == 0 {
		return false, nil
	}
	var at bpf.Stored
	var hop bpf.Hop
	it := k.obj.Stored.Iterate()
	for it.Next(&at, &hop) {
		if hop.Node != id || hop.Generation != n.Generation {
			continue
		}
		err := k.obj.Stored.Delete(at)
		if err == nil {
			return true, nil
		}
		return false, gone(err) // an address has it by now
	}
	return false, it.Err()
}

// putBack puts nodes for that store into it that were taken out for nothing: two sockets met
// an address at once, or a daemon ended before it did.
func (k *Kernel) putBack(each uint32, given map[uint32]bool) error {
	full, err := k.slots(each)
	if err != nil {
		return err
	}
	for _, hop := range full {
		given[hop.Node] = true
	}
	for id, n := range k.nodes {
		if n.Flags&bpf.NodeStored == 0 || n.Parent != each {
			continue
		}
		if given[id] || !k.lost[id] {
			k.lost[id] = !given[id] // an address may be about to get it
			continue
		}
		delete(k.lost, id)
		if err := k.store(id, n); err != nil {
			return err
		}
	}
	return nil
}

// forgetMet takes out whom a node has met that goes.
func (k *Kernel) forgetMet(id, generation uint32) error {
	var done []bpf.PeerMet
	var met bpf.PeerMet
	var own bpf.Hop
	it := k.obj.PeersMet.Iterate()
	for it.Next(&met, &own) {
		if met.Node == id && met.Generation == generation {
			done = append(done, met)
		}
	}
	var errs []error
	for _, met := range done {
		errs = append(errs, gone(k.obj.PeersMet.Delete(met)))
	}
	return errors.Join(errs...)
}
