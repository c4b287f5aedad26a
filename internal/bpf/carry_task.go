package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// FormerTree is a process tree in the state of another release that is taken over.
type FormerTree struct {
	Subject, StartBoottimeNs uint64
	Parent                   uint32   // the enclosing tree, 0 = none
	Members                  []uint32 // thread groups, without those of nested trees
}

// FormerTrees returns, by node, the process trees in the state of another release that is taken over. If the parents of
// a descendant have ended, only this state still tells its tree. The error is ErrLayout if the other release keeps this
// state under other names.
func (o *Object) FormerTrees() (map[uint32]FormerTree, error) {
	if !o.former {
		return nil, nil
	}
	tasks, err := o.formerMap("tasks", "nn_task")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer tasks.m.Close()
	nodes, err := o.formerMap("nodes", "nn_node")
	if err != nil {
		return nil, err
	}
	defer nodes.m.Close()
	var task struct{ node, generation uint32 }
	if err := fieldsOf(tasks.of, map[string]field{"node": {&task.node, 4}, "generation": {&task.generation, 4}}); err != nil {
		return nil, err
	}
	var node struct{ kind, generation, parent, subject, start uint32 }
	if err := fieldsOf(nodes.of, map[string]field{
		"kind": {&node.kind, 4}, "generation": {&node.generation, 4}, "parent": {&node.parent, 4},
		"subject": {&node.subject, 8}, "start_boottime_ns": {&node.start, 8},
	}); err != nil {
		return nil, err
	}
	word, long := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	trees, generations := map[uint32]FormerTree{}, map[uint32]uint32{}
	// add reads a node and its enclosing nodes.
	add := func(at uint32) error {
		for range TreesDeep {
			if _, known := trees[at]; known || at == 0 {
				return nil
			}
			n, err := nodes.m.LookupBytes(at)
			if err != nil {
				return fmt.Errorf("read node %d of another release: %w", at, err)
			}
			if n == nil || word(n[node.kind:]) != KindTree {
				return nil
			}
			generations[at] = word(n[node.generation:])
			trees[at] = FormerTree{Subject: long(n[node.subject:]), StartBoottimeNs: long(n[node.start:]), Parent: word(n[node.parent:])}
			at = trees[at].Parent
		}
		return nil
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, p := range processes {
		tgid, err := strconv.ParseUint(p.Name(), 10, 32)
		if err != nil {
			continue
		}
		mark, err := ofProcess(tasks.m, uint32(tgid))
		if err != nil {
			return nil, fmt.Errorf("read in which trees of another release process %d is: %w", tgid, err)
		}
		if mark == nil {
			continue
		}
		at := word(mark[task.node:])
		if err := add(at); err != nil {
			return nil, err
		}
		if t, ok := trees[at]; ok && generations[at] == word(mark[task.generation:]) {
			t.Members = append(t.Members, uint32(tgid))
			trees[at] = t
		}
	}
	return trees, nil
}

// ofProcess returns the value that a task storage map has for a process, nil if it has none.
func ofProcess(m *ebpf.Map, tgid uint32) ([]byte, error) {
	fd, err := unix.PidfdOpen(int(tgid), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	value, err := m.LookupBytes(uint32(fd))
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	return value, err
}

// formerMap is a map of another release, with the type of its values.
type formerMap struct {
	m  *ebpf.Map
	of *btf.Struct
}

func (o *Object) formerMap(name, of string) (f formerMap, err error) {
	f.m, err = ebpf.LoadPinnedMap(filepath.Join(formerDir(o.opts.PinDir), name), nil)
	if err != nil {
		return f, fmt.Errorf("open another release's %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("read how another release keeps %s: %w", name, err), f.m.Close())
		}
	}()
	h, err := f.m.Handle()
	if err != nil {
		return f, err
	}
	defer h.Close()
	spec, err := h.Spec(nil)
	if err != nil {
		return f, err
	}
	return f, spec.TypeByName(of, &f.of)
}

// field is a wanted field of a struct: at receives its offset, and size is the size in bytes that it must have.
type field struct {
	at   *uint32
	size int
}

// fieldsOf stores the offsets of the wanted fields of another release's struct. The error is ErrLayout if a field is
// missing or has another size.
func fieldsOf(of *btf.Struct, wanted map[string]field) error {
	for name, f := range wanted {
		found := false
		for _, m := range of.Members {
			if m.Name != name || m.BitfieldSize != 0 {
				continue
			}
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				return fmt.Errorf("read how another release keeps %s: %w", of.Name, err)
			}
			*f.at, found = m.Offset.Bytes(), size == f.size
		}
		if !found {
			return fmt.Errorf("another release keeps no %s of %d bytes in %s: %w", name, f.size, of.Name, ErrLayout)
		}
	}
	return nil
}
