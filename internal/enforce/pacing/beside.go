package pacing

import (
	"fmt"

	"github.com/netnice/netnice/internal/bpf"
)

// Object returns the loaded kernel object, for what is enforced beside pacing
// under the same nodes.
func (k *Kernel) Object() *bpf.Object { return k.obj }

// PinDir is where the kernel state is pinned.
func (k *Kernel) PinDir() string { return k.opts.PinDir }

// Members lists the thread groups in a process tree, those of trees nested in it
// too.
func (k *Kernel) Members(id uint32) ([]uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	members, err := k.members(id)
	if err != nil {
		return nil, fmt.Errorf("list the processes of node %d: %w", id, err)
	}
	return members, nil
}
