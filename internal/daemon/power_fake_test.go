package daemon

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

// fakeProcessors keeps groups in memory, and has two processors. A process is in the group where it was put last, or in
// its parent's.
type fakeProcessors struct {
	mu     sync.Mutex
	at     map[int]string // process -> group
	shares map[string]cpu.Share
	slots  map[string]cpu.Share
	fail   error
	// deadlines holds the processes with a deadline. refuse is the answer to a request for one.
	deadlines map[int]cpu.Share
	refuse    error
	waited    uint64
	used      uint64
}

func newProcessors() *fakeProcessors {
	return &fakeProcessors{at: make(map[int]string), shares: make(map[string]cpu.Share), deadlines: make(map[int]cpu.Share)}
}

func (f *fakeProcessors) Place(pid int) (cpu.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		return cpu.Group{}, unix.ESRCH
	}
	return cpu.Group{Dir: filepath.Join("/", f.at[pid], strconv.Itoa(pid))}, nil
}

func (f *fakeProcessors) Make(_ context.Context, g *cpu.Group, pid int, s cpu.Share, also ...int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return 0, f.fail
	}
	tree, err := cpu.Tree(pid)
	if err != nil {
		return 0, err
	}
	f.shares[g.Dir] = s
	for _, p := range append(tree, also...) {
		if at := f.at[p]; filepath.Join("/", at) == filepath.Dir(g.Dir) {
			f.at[p] = g.Dir
		}
	}
	return 0, nil
}

func (f *fakeProcessors) Set(_ context.Context, g cpu.Group, s cpu.Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	f.shares[g.Dir] = s
	return nil
}

func (f *fakeProcessors) Dissolve(_ context.Context, g cpu.Group) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, at := range f.at {
		if at == g.Dir {
			f.at[p] = strings.TrimSuffix(filepath.Dir(g.Dir), "/")
		}
	}
	delete(f.shares, g.Dir)
	return nil
}

func (f *fakeProcessors) Members(g cpu.Group) (pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, at := range f.at {
		if _, err := os.Stat("/proc/" + strconv.Itoa(p)); err == nil && (at == g.Dir || strings.HasPrefix(at, g.Dir+"/")) {
			pids = append(pids, p)
		}
	}
	slices.Sort(pids)
	return pids
}

func (f *fakeProcessors) Used(cpu.Group, uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

func (f *fakeProcessors) Waited(cpu.Group) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waited
}

func (f *fakeProcessors) KeepSlots(groups map[string]cpu.Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil && len(groups) > 0 {
		return f.fail
	}
	f.slots = groups
	return nil
}

func (f *fakeProcessors) PolicyOf(int) (cpu.Policy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cpu.Policy{Nice: 7}, f.refuse
}

func (f *fakeProcessors) Strict(pid int, s cpu.Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		f.deadlines[pid] = s
	}
	return f.refuse
}

func (f *fakeProcessors) Loose(pid int, was cpu.Policy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was != (cpu.Policy{Nice: 7}) {
		return unix.EINVAL
	}
	delete(f.deadlines, pid)
	return nil
}

func (f *fakeProcessors) deadline(pid int) (s cpu.Share, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok = f.deadlines[pid]
	return s, ok
}

func (f *fakeProcessors) CapacityPercent() float64 { return 200 }

func (f *fakeProcessors) share(dir string) (s cpu.Share, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok = f.shares[dir]
	return s, ok
}

func (f *fakeProcessors) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.shares)
}
