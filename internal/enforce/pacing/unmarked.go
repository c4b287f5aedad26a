package pacing

import (
	"errors"

	"github.com/netnice/netnice/internal/bpf"
)

// A fork marks the child as a member of its parent's tree. The kernel may have no room for that mark, or
// may be in the middle of another one on that processor: then it counts a fault, and asks for a look.

// markAnew marks the children that have no mark though their parent has one, if a fork has failed to since.
func (k *Kernel) markAnew() error {
	faults, err := k.Counters()
	if err != nil {
		return err
	}
	if faults[bpf.FaultTaskStorage] == k.unmarked {
		return nil
	}
	var all []uint32
	for id, n := range k.nodes {
		if n.Kind != bpf.KindTree {
			continue
		}
		members, err := k.members(id)
		if err != nil {
			return err
		}
		for _, m := range members {
			if _, err := k.obj.AdoptTasks(m, id, n.Parent); err != nil {
				return err
			}
		}
		if members, err = k.members(id); err != nil {
			return err
		}
		all = append(all, members...)
	}
	if len(all) > 0 { // none: all processes would be looked at
		if err := errors.Join(k.putPolicy(), k.adoptFiles(all)); err != nil {
			return err
		}
	}
	k.unmarked = faults[bpf.FaultTaskStorage]
	return nil
}
