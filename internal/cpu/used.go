package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Used returns the processor time of a group's processes; before is the result of the previous call. Version 1
// without the accounting controller knows the time only of running processes, and of children that these have
// waited for.
func (m *Machine) Used(g Group, before uint64) (ns uint64) {
	if text, err := os.ReadFile(filepath.Join(g.Dir, "cpuacct.usage")); err == nil {
		ns, _ = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return ns
	}
	text, _ := os.ReadFile(filepath.Join(g.Dir, "cpu.stat"))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			ns, _ = strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			return ns * 1000
		}
	}
	for _, pid := range m.Members(g) {
		ns += ThreadsUsed(pid) + reaped(pid)
	}
	return max(ns, before)
}

// reaped returns the processor time of a process's children that have ended, and of their children.
func reaped(pid int) (ns uint64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // missing if the process has ended
	_, behind, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	const user, system, tick = 13, 14, 10_000_000 // fields 16 and 17; USER_HZ is 100 on every architecture
	fields := strings.Fields(behind)
	if len(fields) <= system {
		return 0
	}
	for _, at := range []int{user, system} {
		v, _ := strconv.ParseUint(fields[at], 10, 64)
		ns += v * tick
	}
	return ns
}

// ThreadsUsed returns the processor time of the running threads of a process.
func ThreadsUsed(pid int) (ns uint64) {
	ns, _ = threadsTime(pid)
	return ns
}

// Waited returns how long the running threads of a group have waited for a processor.
func (m *Machine) Waited(g Group) (ns uint64) {
	for _, pid := range m.Members(g) {
		_, waited := threadsTime(pid)
		ns += waited
	}
	return ns
}

// threadsTime returns how long the existing threads of a process have run, and have waited to run.
func threadsTime(pid int) (ranNS, waitedNS uint64) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, _ := os.ReadDir(dir) // missing if the process has ended
	for _, t := range threads {
		text, err := os.ReadFile(filepath.Join(dir, t.Name(), "schedstat"))
		const ran, waited = 0, 1
		if fields := strings.Fields(string(text)); err == nil && len(fields) > waited {
			a, _ := strconv.ParseUint(fields[ran], 10, 64)
			b, _ := strconv.ParseUint(fields[waited], 10, 64)
			ranNS, waitedNS = ranNS+a, waitedNS+b
		}
	}
	return ranNS, waitedNS
}
