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
