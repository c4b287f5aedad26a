package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// ReadCounters reads a map of per-CPU counters and returns the sums over all CPUs. names are the names of the map's
// indexes, in order.
func ReadCounters(m *ebpf.Map, names []string) (map[string]uint64, error) {
	out := map[string]uint64{}
	for i, name := range names {
		var perCPU []uint64
		if err := m.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %s: %w", name, err)
		}
		out[name] = 0
		for _, v := range perCPU {
			out[name] += v
		}
	}
	return out, nil
}

// FaultNames returns the names of the counters in the faults map, by index: those of enum nn_fault in bpf/types.h, which
// says what each means.
func FaultNames() []string {
	return []string{"clock_missing", "class_table_full", FaultTaskStorage, "socket_storage", FaultEventLost, "path_full", "store_empty"}
}

const (
	// FaultEventLost counts the events that were lost because the ring buffer was full.
	FaultEventLost = "event_lost"
	// FaultTaskStorage counts the threads that could not be marked as members of their tree.
	FaultTaskStorage = "task_storage"
)
