package identity

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Selected are the processes that a pattern means.
type Selected struct {
	Outermost []int // a limit on these holds for their descendants, too
	Inner     []int // descendants of the outermost
	Others    int   // how many more the pattern means, which the caller does not own
}

// Select finds the processes of a list that a pattern means and the caller owns, sorted by their ids.
func Select(all []ProcessInfo, means func(ProcessInfo) bool, owns func(uid uint32) bool) (s Selected) {
	found, parents := make(map[int]bool), make(map[int]int, len(all))
	for _, p := range all {
		parents[p.PID] = p.Parent
		switch {
		case !means(p):
		case !owns(p.UID):
			s.Others++
		default:
			found[p.PID] = true
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(found)) {
		if descends(pid, parents, found) {
			s.Inner = append(s.Inner, pid)
			continue
		}
		s.Outermost = append(s.Outermost, pid)
	}
	return s
}

// descends reports whether an ancestor of a process is among others.
func descends(pid int, parents map[int]int, among map[int]bool) bool {
	for range parents { // a process has no more ancestors than there are processes
		pid = parents[pid]
		if pid == 0 {
			return false
		}
		if among[pid] {
			return true
		}
	}
	return false
}

// IsCut reports whether the kernel's name for a process is the beginning of its file's name. The kernel's names have 15
// bytes at most.
func (p ProcessInfo) IsCut() bool {
	const most = 15
	return p.Path != "" && len(p.Comm) == most && strings.HasPrefix(path.Base(p.Path), p.Comm)
}

// ProgramNames lists the names by which a pattern can mean processes: the name of the file that a process runs, and
// the kernel's name, which for a script is that of the script.
func ProgramNames(list []ProcessInfo) []string {
	names := make(map[string]bool)
	for _, p := range list {
		if !p.IsCut() {
			names[p.Comm] = true
		}
		if base := path.Base(p.Path); p.Path != "" {
			names[base] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
