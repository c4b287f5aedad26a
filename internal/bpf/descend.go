package bpf

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// hasChildren reports whether this kernel lists children in /proc
// (CONFIG_PROC_CHILDREN).
var hasChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// childrenOf returns a function that lists the children of all threads of a process. A process that has ended has none.
func childrenOf(proc string) func(tgid uint32) []uint32 {
	return func(tgid uint32) (list []uint32) {
		dir := filepath.Join(proc, strconv.FormatUint(uint64(tgid), 10), "task")
		f, err := os.Open(dir)
		if err != nil {
			return nil
		}
		defer f.Close()
		threads, _ := f.Readdirnames(-1) // the names that were read before an error count
		for _, tid := range threads {
			text, err := os.ReadFile(filepath.Join(dir, tid, "children"))
			if err != nil {
				continue // the thread has ended
			}
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.ParseUint(word, 10, 32); err == nil {
					list = append(list, uint32(pid))
				}
			}
		}
		return list
	}
}

// descend marks a process and its descendants, and returns them. It marks each process before it lists the children: a
// child that is forked later inherits the mark. While processes end, a list in /proc may lack some living processes.
// Therefore descend lists the children twice, and returns nil if the lists differ. It also returns nil if there are
// more processes than most, or if marking the root marked the whole machine's processes (alone is false).
func descend(root uint32, most int, children func(uint32) []uint32, mark func(uint32) (alone bool, err error)) ([]uint32, error) {
	list := []uint32{root}
	if alone, err := mark(root); err != nil || !alone {
		return nil, err
	}
	seen := map[uint32]bool{root: true}
	looks := make(map[uint32][]uint32)
	for i := 0; i < len(list); i++ {
		look := children(list[i])
		for _, child := range look {
			if seen[child] {
				continue
			}
			if len(list) == most {
				return nil, nil
			}
			if _, err := mark(child); err != nil {
				return nil, err
			}
			seen[child], list = true, append(list, child)
		}
		slices.Sort(look)
		looks[list[i]] = look
	}
	for _, p := range list {
		again := children(p)
		if slices.Sort(again); !slices.Equal(again, looks[p]) {
			return nil, nil
		}
	}
	return list, nil
}
