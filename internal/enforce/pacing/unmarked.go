package pacing

import (
	"errors"

	"github.com/netnice/netnice/internal/bpf"
)

// A fork marks the child as a member of its parent's tree. This fails if the kernel has no memory for the mark, or
// is setting another mark on that processor. The datapath then counts a fault, and asks the daemon for a look.

// markAnew marks the children without a mark whose parents have one. It does so only if a fork has failed to set
// its mark since the last call.
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
	if len(all) > 0 { // an empty list would make adoptFiles visit all processes
		if err := errors.Join(k.putPolicy(), k.adoptFiles(all)); err != nil {
			return err
		}
	}
	k.unmarked = faults[bpf.FaultTaskStorage]
	return nil
}
