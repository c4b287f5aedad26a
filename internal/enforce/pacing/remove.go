package pacing

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
)

// RemoveNode implements enforce.Nodes.
func (k *Kernel) RemoveNode(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.remove(id)
}

func (k *Kernel) remove(id uint32) error {
	n, ok := k.nodes[id]
	if !ok {
		return nil
	}
	defer k.changedLimits()
	switch n.Kind {
	case bpf.KindSocket:
		return k.removeSocket(id, n)
	case bpf.KindDestination:
		return k.removeDestination(id, n)
	}
	members, err := k.members(id)
	if err != nil {
		return err
	}
	delete(k.nodes, id)
	n.Flags &^= bpf.NodeLive
	if err := k.obj.Nodes.Put(id, &n); err != nil {
		return fmt.Errorf("write node %d: %w", id, err)
	}
	if err := k.index(id, n, false); err != nil {
		return err
	}
	if n.Kind == bpf.KindTree {
		if err := k.reparent(id, n.Parent); err != nil {
			return err
		}
		if err := k.obj.ReleaseTasks(id, n.Parent); err != nil {
			return err
		}
	} else {
		members = nil
	}
	if err := k.putPolicy(); err != nil {
		return err
	}
	if len(k.nodes) > 0 {
		if err := k.adoptFiles(members); err != nil {
			return err
		}
	}
	if err := k.adoptConnections(false); err != nil {
		return err
	}
	if err := k.clear(id, n.Generation); err != nil {
		return err
	}
	if len(k.nodes) == 0 {
		return k.lastNodeWent()
	}
	k.cover.stale = true
	return nil
}

// clear removes the remains of a node from the maps. The node is not live any more.
func (k *Kernel) clear(id, generation uint32) error {
	delete(k.processes, id)
	if err := k.obj.Nodes.Put(id, &bpf.Node{Generation: generation}); err != nil {
		return fmt.Errorf("clear node %d: %w", id, err)
	}
	for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
		key := bpf.ClockKey{Node: id, Direction: d}
		delete(k.noClock, key)
		if err := k.obj.Clocks.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove the clock of node %d: %w", id, err)
		}
	}
	return nil
}

// removeAll lifts every node at once and releases the connections. Processes keep marks that name no node. These
// marks go with the map.
func (k *Kernel) removeAll() error {
	gone := maps.Clone(k.nodes)
	for id, n := range gone {
		n.Flags &^= bpf.NodeLive
		if err := k.obj.Nodes.Put(id, &n); err != nil {
			return fmt.Errorf("write node %d: %w", id, err)
		}
		if err := k.index(id, n, false); err != nil {
			return err
		}
	}
	k.nodes, k.to = map[uint32]bpf.Node{}, destinations{}
	err := k.putPolicy()
	if err == nil {
		err = k.adoptConnections(false)
	}
	if err != nil {
		k.nodes = gone // the caller may try again
		return errors.Join(err, k.readDestinations())
	}
	for id, n := range gone {
		if err := k.clear(id, n.Generation); err != nil {
			return err
		}
	}
	return nil
}

// reparent hands the trees nested in a removed tree to the tree around it.
func (k *Kernel) reparent(from, to uint32) error {
	for id := range k.nodes {
		n := k.nodes[id]
		if n.Kind != bpf.KindTree || n.Parent != from {
			continue
		}
		n.Parent = to
		if err := k.obj.Nodes.Put(id, &n); err != nil {
			return fmt.Errorf("write node %d: %w", id, err)
		}
		k.nodes[id] = n
	}
	return nil
}
