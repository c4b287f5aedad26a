package pacing

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// A node with per-peer limits (NodeSpec.Each) has a pool of preallocated nodes. The kernel side gives them to
// addresses that it meets: nn_each_own.

// Peers implements enforce.Paths.
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
	if ok && n.Flags&bpf.NodeNotes != 0 {
		if err := k.peersNoted(id, seen); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Keys(seen)), nil
}

// peersNoted adds the addresses that a node noted, and removes them from the map. The datapath notes an address
// again if it is still a destination.
func (k *Kernel) peersNoted(id uint32, seen map[enforce.Peer]bool) error {
	var noted bpf.PeerMet
	var netns uint32
	var read []bpf.PeerMet
	it := k.obj.PeersNoted.Iterate()
	for it.Next(&noted, &netns) {
		if noted.Node != id {
			continue
		}
		read = append(read, noted)
		if noted.Generation == k.nodes[id].Generation && netns != 0 {
			seen[enforce.Peer{Address: netip.AddrFrom16(noted.Peer).Unmap(), Netns: netns}] = true
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // the next call reads the rest
		return fmt.Errorf("read the addresses that were noted: %w", err)
	}
	return forget(k.obj.PeersNoted, slices.Values(read))
}

// peersMet adds the addresses that the kernel side has met. It removes an address from the map if it has no node,
// or if its node is no longer a pool node. Nodes of the pool that no address has, and that are in no slot, go back
// into the pool.
func (k *Kernel) peersMet(id uint32, seen map[enforce.Peer]bool) error {
	met, err := k.met(id, k.nodes[id].Generation)
	if err != nil {
		return err
	}
	given := map[uint32]bool{}
	for key, own := range met {
		p := enforce.Peer{Address: netip.AddrFrom16(key.Peer).Unmap()}
		if n, ok := k.at(own); ok && n.Flags&bpf.NodeStored != 0 {
			p.Node = own.Node
			given[own.Node] = true
			delete(met, key) // an address with a pool node stays in the map
		}
		seen[p] = true
	}
	if err := forget(k.obj.PeersMet, maps.Keys(met)); err != nil {
		return err
	}
	return k.putBack(id, given)
}

// at returns the node of a hop. The result is false if the node's number now has another generation.
func (k *Kernel) at(h bpf.Hop) (bpf.Node, bool) {
	n, ok := k.nodes[h.Node]
	return n, ok && n.Generation == h.Generation
}

// met lists the addresses that a node of that generation has met, each with the node that it got from the pool.
func (k *Kernel) met(id, generation uint32) (map[bpf.PeerMet]bpf.Hop, error) {
	out := map[bpf.PeerMet]bpf.Hop{}
	var met bpf.PeerMet
	var own bpf.Hop
	it := k.obj.PeersMet.Iterate()
	for it.Next(&met, &own) {
		if met.Node == id && met.Generation == generation {
			out[met] = own
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // the next call reads the rest
		return nil, fmt.Errorf("read the addresses that were met: %w", err)
	}
	return out, nil
}

// forget removes addresses from a map.
func forget(m *ebpf.Map, met iter.Seq[bpf.PeerMet]) error {
	var errs []error
	for key := range met {
		errs = append(errs, gone(m.Delete(key)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take addresses out that were met: %w", err)
	}
	return nil
}

// store puts a node that is meant for a pool into a free slot of it.
func (k *Kernel) store(id uint32, n bpf.Node) error {
	if n.Flags&bpf.NodeStored == 0 {
		return nil
	}
	at := bpf.Stored{Node: n.Parent, Generation: k.nodes[n.Parent].Generation}
	for at.Slot = range uint32(enforce.MostStored) {
		err := k.obj.Stored.Update(at, bpf.Hop{Node: id, Generation: n.Generation}, ebpf.UpdateNoExist)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ebpf.ErrKeyExist):
			return fmt.Errorf("put node %d in store: %w", id, err)
		}
	}
	return fmt.Errorf("node %d: there are %d in store for node %d", id, enforce.MostStored, n.Parent)
}

// unstore takes a node out of its pool, and reports whether it was there.
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
		return false, gone(err) // an address has taken it meanwhile
	}
	return false, it.Err()
}

// putBack returns nodes to the pool that left it without an address. This happens if two sockets met an address at
// once, or if a daemon ended too early.
func (k *Kernel) putBack(each uint32, given map[uint32]bool) error {
	at := bpf.Stored{Node: each, Generation: k.nodes[each].Generation}
	for at.Slot = range uint32(enforce.MostStored) {
		var hop bpf.Hop
		if err := gone(k.obj.Stored.Lookup(at, &hop)); err != nil {
			return fmt.Errorf("read what is in store for node %d: %w", each, err)
		}
		given[hop.Node] = true // node 0: the slot is empty
	}
	for id, n := range k.nodes {
		if n.Flags&bpf.NodeStored == 0 || n.Parent != each {
			continue
		}
		if given[id] || !k.lost[id] {
			k.lost[id] = !given[id] // wait for the next call, as an address may be about to get it
			continue
		}
		delete(k.lost, id)
		if err := k.store(id, n); err != nil {
			return err
		}
	}
	return nil
}
