package cpu

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Tree lists a process and its running descendants, parents first. Without the process it is
// empty.
func Tree(pid int) ([]int, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := make(map[int][]int)
	there := false
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		there = there || p.PID == pid
		children[stat.PPID] = append(children[stat.PPID], p.PID)
	}
	if !there {
		return nil, nil
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}
