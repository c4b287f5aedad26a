package enforcetest

import (
	"fmt"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
)

// Join implements enforce.Members.
func (k *Kernel) Join(id uint32, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Join"); err != nil {
		return err
	}
	spec, ok := k.nodes[id]
	if !ok || spec.Kind != enforce.KindTree || spec.Subject != 0 {
		return fmt.Errorf("node %d is not one to join", id)
	}
	stats := k.stats[id]
	stats.Processes++
	k.stats[id] = stats
	k.trees[pid] = append(k.trees[pid], id)
	for own, spec := range k.nodes {
		if stats := k.stats[own]; spec.Kind == enforce.KindTree && spec.Subject == uint64(pid) && stats.Parent == 0 {
			stats.Parent = id
			k.stats[own] = stats
		}
	}
	return nil
}

// Leave implements enforce.Members.
func (k *Kernel) Leave(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Leave"); err != nil {
		return err
	}
	own := k.stats[id]
	group, ok := k.nodes[own.Parent]
	if !ok || group.Kind != enforce.KindTree || group.Subject != 0 {
		return fmt.Errorf("node %d is directly in none that it could leave", id)
	}
	stats := k.stats[group.ID]
	stats.Processes--
	k.stats[group.ID] = stats
	for pid, joined := range k.trees {
		if pid == int(k.nodes[id].Subject) || slices.Contains(joined, id) {
			k.trees[pid] = slices.DeleteFunc(joined, func(at uint32) bool { return at == group.ID })
		}
	}
	own.Parent = group.Parent
	k.stats[id] = own
	return nil
}

// release hands the members of a node to its parent.
func (k *Kernel) release(id uint32) {
	for pid, joined := range k.trees {
		k.trees[pid] = slices.DeleteFunc(joined, func(at uint32) bool { return at == id })
	}
	for inside, stats := range k.stats {
		if stats.Parent == id {
			stats.Parent = k.stats[id].Parent
			k.stats[inside] = stats
		}
	}
}

// Trees implements enforce.Members. It lists the nodes of the process itself, the nodes that it has joined, and
// those that SetTrees named.
func (k *Kernel) Trees(pid int) []uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []uint32
	for id, spec := range k.nodes {
		if spec.Kind == enforce.KindTree && spec.Subject == uint64(pid) {
			list = append(list, id)
		}
	}
	for _, id := range k.trees[pid] {
		if _, there := k.nodes[id]; there {
			list = append(list, id)
		}
	}
	return list
}

// SetTrees says which trees a process is in beside its own.
func (k *Kernel) SetTrees(pid int, ids ...uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.enter("SetTrees")
	k.trees[pid] = ids
}
