package pacing

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Join implements enforce.Members.
func (k *Kernel) Join(id uint32, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.nodes[id]
	if !ok || n.Kind != bpf.KindTree || n.Subject != 0 {
		return fmt.Errorf("node %d is not one to join", id)
	}
	return k.enlist(id, n, uint32(pid))
}

// Leave implements enforce.Members. Processes keep their mark, which names the node that leaves.
func (k *Kernel) Leave(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.nodes[id]
	group, around := k.nodes[n.Parent]
	if !ok || !around || n.Kind != bpf.KindTree || group.Kind != bpf.KindTree || group.Subject != 0 {
		return fmt.Errorf("node %d is directly in none that it could leave", id)
	}
	members, err := k.members(id)
	if err != nil {
		return err
	}
	left := n.Parent
	n.Parent = group.Parent
	if err := k.obj.Nodes.Put(id, &n); err != nil {
		return fmt.Errorf("write node %d: %w", id, err)
	}
	k.nodes[id] = n
	k.processes[left] = max(0, k.processes[left]-len(members))
	if err := k.putPolicy(); err != nil {
		return err
	}
	if err := k.adoptFiles(members); err != nil {
		return err
	}
	k.cover.stale = true
	return k.adoptConnections(false)
}

// Trees implements enforce.Members.
func (k *Kernel) Trees(pid int) []uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trees(uint32(pid))
}

func (k *Kernel) trees(tgid uint32) (list []uint32) {
	for at := k.treeOf(tgid); at != 0 && len(list) < bpf.TreesDeep; {
		n, ok := k.nodes[at]
		if !ok || n.Kind != bpf.KindTree {
			break
		}
		list = append(list, at)
		at = n.Parent
	}
	return list
}

// treeOf returns the innermost tree that a process is in, 0 = none.
func (k *Kernel) treeOf(tgid uint32) uint32 {
	fd, err := unix.PidfdOpen(int(tgid), 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var t bpf.Task
	if err := k.obj.Tasks.Lookup(uint32(fd), &t); err != nil {
		return 0
	}
	if n, ok := k.nodes[t.Node]; !ok || n.Generation != t.Generation {
		return 0
	}
	return t.Node
}

// tooDeep returns an error if a new tree makes the nesting too deep, around another tree or around itself. The
// number of nodes on a socket's path is bounded.
func (k *Kernel) tooDeep(id uint32, nests bool) error {
	look := func(at uint32) error {
		own, through := 0, false
		for depth := 1; at != 0; depth++ {
			n, ok := k.nodes[at]
			if !ok || n.Kind != bpf.KindTree {
				break
			}
			through = through || at == id
			if n.Flags&bpf.NodeOwn != 0 {
				own++
			}
			if through && depth > enforce.MostNested {
				return fmt.Errorf("%w: %d are around each other already", enforce.ErrTooDeep, enforce.MostNested)
			}
			at = n.Parent
		}
		if through && own > enforce.MostOwnNested && k.nodes[id].Flags&bpf.NodeOwn != 0 {
			return fmt.Errorf("%w: %d of a user's own are around each other already", enforce.ErrTooDeep, enforce.MostOwnNested)
		}
		return nil
	}
	if !nests {
		return look(id)
	}
	for at, n := range k.nodes {
		if n.Kind != bpf.KindTree {
			continue
		}
		if err := look(at); err != nil {
			return err
		}
	}
	return nil
}
