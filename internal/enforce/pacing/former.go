package pacing

import (
	"errors"
	"maps"
	"slices"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// A process whose limited ancestors have ended is a member of a tree by its mark alone. If another release's maps
// are set aside, this file reads the marks out of them. Nodes of the same number and subject get these members,
// too.

// mostCarries bounds the looks for members that were forked meanwhile.
const mostCarries = 8

// carryTrees reads which processes are in another release's trees. A failure does not keep the daemon from
// starting.
func (k *Kernel) carryTrees() {
	var err error
	if k.former, err = k.obj.FormerTrees(); err != nil {
		k.opts.Logger.Warn("processes whose limited parents have ended may lose their limits", "err", err)
	}
}

// Inherits implements enforce.Nodes.
func (k *Kernel) Inherits(spec enforce.NodeSpec) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.formerMembers(spec.ID, nodeOf(spec))) > 0
}

// isFormer says whether the node had the same subject in the other release.
func (k *Kernel) isFormer(id uint32, n bpf.Node) bool {
	t, ok := k.former[id]
	return ok && n.Kind == bpf.KindTree && t.Subject == n.Subject && t.StartBoottimeNs == n.StartBoottimeNs
}

// formerMembers lists the processes that were in the node, or in one nested in it, in the other release. The
// process that the node is named for comes first.
func (k *Kernel) formerMembers(id uint32, n bpf.Node) (list []uint32) {
	if !k.isFormer(id, n) {
		return nil
	}
	for at, t := range k.former {
		if len(t.Members) > 0 && slices.Contains(k.formerPath(at), id) {
			list = append(list, t.Members...)
		}
	}
	slices.SortFunc(list, func(a, b uint32) int {
		switch uint32(n.Subject) {
		case a:
			return -1
		case b:
			return 1
		}
		return int(a) - int(b)
	})
	return list
}

// formerPath lists a node of the other release and the nodes around it, innermost first.
func (k *Kernel) formerPath(at uint32) (path []uint32) {
	for at != 0 && len(path) < bpf.TreesDeep {
		t, ok := k.former[at]
		if !ok {
			break
		}
		path = append(path, at)
		at = t.Parent
	}
	return path
}

// formerOuter returns the innermost tree around the node that exists already, 0 = none. Enclosing trees that are
// made later take the node in.
func (k *Kernel) formerOuter(id uint32, n bpf.Node) (outer uint32, ok bool) {
	if !k.isFormer(id, n) {
		return 0, false
	}
	for _, at := range k.formerPath(id)[1:] {
		if n, ok := k.nodes[at]; ok && k.isFormer(at, n) {
			return at, true
		}
	}
	return 0, true
}

// carryLate finds members whose parents were not marked yet at the fork and have ended since. It repeats the search
// until it finds none.
func (k *Kernel) carryLate() error {
	defer func() { k.former = nil }()
	for range mostCarries {
		if len(k.former) == 0 {
			return nil
		}
		k.carryTrees()
		found := false
		for _, id := range slices.Sorted(maps.Keys(k.nodes)) {
			n := k.nodes[id]
			missing := slices.DeleteFunc(k.formerMembers(id, n), func(tgid uint32) bool {
				return slices.Contains(k.trees(tgid), id)
			})
			if len(missing) == 0 {
				continue
			}
			found = true
			if err := k.enlist(id, n, missing...); err != nil {
				return err
			}
		}
		if !found {
			return nil
		}
	}
	return nil
}

// mark makes processes and their descendants members of a tree.
func (k *Kernel) mark(id, outer uint32, roots []uint32) (all bpf.Adopted, err error) {
	for i, root := range roots {
		if i > 0 && slices.Contains(k.trees(root), id) {
			continue // a descendant of an earlier root
		}
		one, err := k.obj.AdoptTasks(root, id, outer)
		if err != nil {
			return all, err
		}
		if i == 0 {
			all = one
			continue
		}
		all.Nests = all.Nests || one.Nests
		maps.Copy(all.Cgroups, one.Cgroups)
		if all.Members != nil && one.Members != nil {
			all.Members = append(all.Members, one.Members...)
		} else {
			all.Members = nil // the processes of the whole machine were visited
		}
	}
	if len(roots) == 0 {
		return all, errors.New("nobody to be a member of the tree")
	}
	return all, nil
}
