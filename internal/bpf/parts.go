package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// mostParts bounds the number of parts of an object that are loaded concurrently. Each part reads the kernel's type
// information for itself, which takes as long as loading one program.
const mostParts = 4

// partOverhead is the fixed cost of loading a program, in instructions.
const partOverhead = 500

// processors returns the number of processors on which the Go runtime runs goroutines, and raises that number by
// mostParts. A call that loads a program takes milliseconds to seconds. The runtime may notice only after 10 ms that
// the thread of the call waits. Without the additional processors an event of the kernel was not handled in that time.
var processors = sync.OnceValue(func() int {
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + mostParts)
	return n
})

// onVerified receives the verifier's statistics of each loaded program. Only tests set it.
var onVerified func(program, log string)

// loadInParts does what ebpf.NewCollectionWithOptions does, but loads the programs on all CPUs at once. The kernel
// verifies each program by itself.
func loadInParts(spec *ebpf.CollectionSpec, opts ebpf.CollectionOptions) (*ebpf.Collection, error) {
	if v := spec.Variables["inside_known"]; v != nil && readsInside() {
		if err := v.Set(uint32(1)); err != nil {
			return nil, fmt.Errorf("prepare to read packets: %w", err)
		}
	}
	if onVerified != nil {
		opts.Programs.LogLevel |= ebpf.LogLevelStats
	}
	parts := partition(spec.Programs, min(mostParts, processors()))
	without := spec.Copy()
	clear(without.Programs)
	coll, err := ebpf.NewCollectionWithOptions(without, opts)
	if err != nil {
		return nil, err
	}
	opts.MapReplacements = coll.Maps
	colls := make([]*ebpf.Collection, len(parts))
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, names := range parts {
		part := spec.Copy()
		clear(part.Programs)
		clear(part.Variables) // the first collection has the variables
		for _, name := range names {
			part.Programs[name] = spec.Programs[name].Copy()
		}
		wg.Go(func() {
			beOrdinary()
			colls[i], errs[i] = ebpf.NewCollectionWithOptions(part, opts)
		})
	}
	wg.Wait()
	for i, c := range colls {
		if c == nil {
			continue
		}
		for _, name := range parts[i] {
			coll.Programs[name] = c.DetachProgram(name)
			if onVerified != nil {
				onVerified(name, coll.Programs[name].VerifierLog)
			}
		}
		c.Close() // its maps are additional descriptors
	}
	if err := errors.Join(errs...); err != nil {
		coll.Close()
		return nil, err
	}
	return coll, nil
}

// readsInside reports whether programs can read the kernel's own structs, starting from the packet context that they
// get (Linux 6.2).
func readsInside() bool {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	for _, name := range []string{"bpf_cast_to_kern_ctx", "bpf_rdonly_cast"} {
		var f *btf.Func
		if kernel.TypeByName(name, &f) != nil {
			return false
		}
	}
	return true
}

// beOrdinary gives the calling goroutine a thread of its own with at most the usual priority. A daemon has a higher
// priority in order to react fast. The verifier's work lasts seconds on slow CPUs, and must not take that time from
// other programs.
func beOrdinary() {
	const ordinary = 20    // nice 0, as the kernel counts
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && now > ordinary {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
	}
}

// partition divides programs into parts that take about the same time to load.
func partition(programs map[string]*ebpf.ProgramSpec, most int) [][]string {
	names := make([]string, 0, len(programs))
	cost := map[string]int{}
	for name, p := range programs {
		names = append(names, name)
		cost[name] = len(p.Instructions) + partOverhead
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := cost[b] - cost[a]; d != 0 {
			return d
		}
		if a < b {
			return -1
		}
		return 1
	})
	parts := make([][]string, min(most, len(names)))
	sums := make([]int, len(parts))
	for _, name := range names {
		least := 0
		for i := range sums {
			if sums[i] < sums[least] {
				least = i
			}
		}
		parts[least] = append(parts[least], name)
		sums[least] += cost[name]
	}
	return parts
}
