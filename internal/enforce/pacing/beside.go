package pacing

import (
	"fmt"

	"github.com/netnice/netnice/internal/bpf"
)

// Object returns the loaded kernel object. Other parts of package enforce use it to limit further traffic under the
// same nodes.
func (k *Kernel) Object() *bpf.Object { return k.obj }

// Members lists the thread groups in a process tree, including those of nested trees.
func (k *Kernel) Members(id uint32) ([]uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	members, err := k.members(id)
	if err != nil {
		return nil, fmt.Errorf("list the processes of node %d: %w", id, err)
	}
	return members, nil
}
