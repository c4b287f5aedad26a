package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Tree lists a process and its running descendants, parents first. The list is empty if the process does not run.
func Tree(pid int) ([]int, error) {
	tree, ok := treeByChildren(pid)
	if ok {
		return tree, nil
	}
	return treeByParents(pid)
}

// treeByChildren takes time in proportion to the tree. It is not ok on a kernel without lists of children
// (CONFIG_PROC_CHILDREN).
func treeByChildren(pid int) (tree []int, ok bool) {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		return nil, false
	}
	tree = []int{pid}
	there := false
	for i := 0; i < len(tree); i++ {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", tree[i]))
		there = there || len(threads) > 0
		for _, path := range threads {
			text, _ := os.ReadFile(path) // a thread may have ended
			for word := range strings.FieldsSeq(string(text)) {
				if child, err := strconv.Atoi(word); err == nil {
					tree = append(tree, child)
				}
			}
		}
	}
	if !there {
		return nil, true
	}
	return tree, true
}

// treeByParents looks at all processes.
func treeByParents(pid int) ([]int, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := make(map[int][]int)
	there := false
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil {
			continue // the process has ended
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
