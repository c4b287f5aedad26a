// Package cpusharetest has the mechanism for CPU shares that tests use.
package cpusharetest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/cpu"
)

// Processors is a cpushare.Processors that keeps groups in memory, and has two processors. A process is in the group
// where it was put last, or in its parent's. Tests change the fields by Change.
type Processors struct {
	mu        sync.Mutex
	slots     map[string]cpu.Share
	deadlines map[int]cpu.Share // the processes with a deadline

	At     map[int]string       // the group of a process
	Shares map[string]cpu.Share // by group
	// Failure is the answer to requests for a group, NoDeadline to those for a deadline; nil = they succeed.
	Failure, NoDeadline error
	UsedNS, WaitedNS    uint64 // of every group
}

// New returns processors without groups.
func New() *Processors {
	return &Processors{At: make(map[int]string), Shares: make(map[string]cpu.Share), deadlines: make(map[int]cpu.Share)}
}

// Place implements cpushare.Processors.
func (f *Processors) Place(pid int) (cpu.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		return cpu.Group{}, unix.ESRCH
	}
	return cpu.Group{Dir: filepath.Join("/", f.At[pid], strconv.Itoa(pid))}, nil
}

// Make implements cpushare.Processors.
func (f *Processors) Make(_ context.Context, g *cpu.Group, pid int, s cpu.Share, also ...int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Failure != nil {
		return 0, f.Failure
	}
	tree, err := cpu.Tree(pid)
	if err != nil {
		return 0, err
	}
	f.Shares[g.Dir] = s
	for _, p := range append(tree, also...) {
		if at := f.At[p]; filepath.Join("/", at) == filepath.Dir(g.Dir) {
			f.At[p] = g.Dir
		}
	}
	return 0, nil
}

// Set implements cpushare.Processors.
func (f *Processors) Set(_ context.Context, g cpu.Group, s cpu.Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Failure != nil {
		return f.Failure
	}
	f.Shares[g.Dir] = s
	return nil
}

// Dissolve implements cpushare.Processors.
func (f *Processors) Dissolve(_ context.Context, g cpu.Group) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, at := range f.At {
		if at == g.Dir {
			f.At[p] = strings.TrimSuffix(filepath.Dir(g.Dir), "/")
		}
	}
	delete(f.Shares, g.Dir)
	return nil
}

// Members implements cpushare.Processors.
func (f *Processors) Members(g cpu.Group) (pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, at := range f.At {
		if _, err := os.Stat("/proc/" + strconv.Itoa(p)); err == nil && (at == g.Dir || strings.HasPrefix(at, g.Dir+"/")) {
			pids = append(pids, p)
		}
	}
	slices.Sort(pids)
	return pids
}

// Used implements cpushare.Processors.
func (f *Processors) Used(cpu.Group, uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.UsedNS
}

// Waited implements cpushare.Processors.
func (f *Processors) Waited(cpu.Group) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.WaitedNS
}

// KeepSlots implements cpushare.Processors.
func (f *Processors) KeepSlots(groups map[string]cpu.Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Failure != nil && len(groups) > 0 {
		return f.Failure
	}
	f.slots = groups
	return nil
}

// PolicyOf implements cpushare.Processors.
func (f *Processors) PolicyOf(int) (cpu.Policy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cpu.Policy{Nice: 7}, f.NoDeadline
}

// Strict implements cpushare.Processors.
func (f *Processors) Strict(pid int, s cpu.Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.NoDeadline == nil {
		f.deadlines[pid] = s
	}
	return f.NoDeadline
}

// Loose implements cpushare.Processors.
func (f *Processors) Loose(pid int, was cpu.Policy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was != (cpu.Policy{Nice: 7}) {
		return unix.EINVAL
	}
	delete(f.deadlines, pid)
	return nil
}

// Deadline returns the deadline of a process.
func (f *Processors) Deadline(pid int) (s cpu.Share, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok = f.deadlines[pid]
	return s, ok
}

// CapacityPercent implements cpushare.Processors.
func (f *Processors) CapacityPercent() float64 { return 200 }

// ShareOf returns the share of a group.
func (f *Processors) ShareOf(dir string) (s cpu.Share, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok = f.Shares[dir]
	return s, ok
}

// Count returns the number of groups.
func (f *Processors) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.Shares)
}

// Change calls g, which may change the fields.
func (f *Processors) Change(g func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g()
}

// Slotted returns the groups with slots.
func (f *Processors) Slotted() (groups map[string]cpu.Share) {
	f.Change(func() { groups = f.slots })
	return groups
}
