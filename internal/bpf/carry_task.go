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
	r := formerReader{
		tasks: tasks.m, nodes: nodes.m,
		trees: make(map[uint32]FormerTree), generations: make(map[uint32]uint32),
	}
	if err := r.findFields(tasks.of, nodes.of); err != nil {
		return nil, err
	}
	if err := r.readMembers(); err != nil {
		return nil, err
	}
	return r.trees, nil
}

// formerReader reads the process trees out of another release's maps.
type formerReader struct {
	tasks, nodes *ebpf.Map
	task         struct{ node, generation uint32 }                         // offsets in a task's value
	node         struct{ kind, generation, parent, subject, start uint32 } // offsets in a node
	trees        map[uint32]FormerTree
	generations  map[uint32]uint32 // by node
}

// findFields finds the offsets of the fields in the values of both maps. The error is ErrLayout if a field is missing.
func (r *formerReader) findFields(task, node *btf.Struct) error {
	if err := fieldsOf(task, map[string]field{"node": {&r.task.node, 4}, "generation": {&r.task.generation, 4}}); err != nil {
		return err
	}
	return fieldsOf(node, map[string]field{
		"kind": {&r.node.kind, 4}, "generation": {&r.node.generation, 4}, "parent": {&r.node.parent, 4},
		"subject": {&r.node.subject, 8}, "start_boottime_ns": {&r.node.start, 8},
	})
}

// readMembers reads the tree of each process of the machine.
func (r *formerReader) readMembers() error {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, p := range processes {
		tgid, err := strconv.ParseUint(p.Name(), 10, 32)
		if err != nil {
			continue
		}
		if err := r.readMember(uint32(tgid)); err != nil {
			return err
		}
	}
	return nil
}

// readMember adds a process to its tree, if it is in one that still exists.
func (r *formerReader) readMember(tgid uint32) error {
	mark, err := ofProcess(r.tasks, tgid)
	if err != nil {
		return fmt.Errorf("read in which trees of another release process %d is: %w", tgid, err)
	}
	if mark == nil {
		return nil
	}
	at := binary.NativeEndian.Uint32(mark[r.task.node:])
	if err := r.readTree(at); err != nil {
		return err
	}
	if t, ok := r.trees[at]; ok && r.generations[at] == binary.NativeEndian.Uint32(mark[r.task.generation:]) {
		t.Members = append(t.Members, tgid)
		r.trees[at] = t
	}
	return nil
}

// readTree reads a node and its enclosing nodes.
func (r *formerReader) readTree(at uint32) error {
	word, long := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	for range TreesDeep {
		if _, known := r.trees[at]; known || at == 0 {
			return nil
		}
		n, err := r.nodes.LookupBytes(at)
		if err != nil {
			return fmt.Errorf("read node %d of another release: %w", at, err)
		}
		if n == nil || word(n[r.node.kind:]) != KindTree {
			return nil
		}
		r.generations[at] = word(n[r.node.generation:])
		r.trees[at] = FormerTree{Subject: long(n[r.node.subject:]), StartBoottimeNs: long(n[r.node.start:]), Parent: word(n[r.node.parent:])}
		at = r.trees[at].Parent
	}
	return nil
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
