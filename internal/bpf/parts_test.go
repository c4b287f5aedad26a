package bpf

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

func TestPartition(t *testing.T) {
	programs := map[string]*ebpf.ProgramSpec{}
	for i, n := range []int{2600, 2500, 700, 650, 600, 500, 450, 400, 300, 90, 80, 25} {
		programs[fmt.Sprint("p", i)] = &ebpf.ProgramSpec{Instructions: make(asm.Instructions, n)}
	}
	for most := 1; most <= 4; most++ {
		var names []string
		least, largest := 1<<30, 0
		for _, part := range partition(programs, most) {
			names = append(names, part...)
			sum := 0
			for _, name := range part {
				sum += len(programs[name].Instructions) + partOverhead
			}
			least, largest = min(least, sum), max(largest, sum)
		}
		slices.Sort(names)
		if len(names) != len(programs) || len(slices.Compact(names)) != len(programs) {
			t.Errorf("%d parts have %d of %d programs", most, len(names), len(programs))
		}
		if largest-least > 1000 {
			t.Errorf("of %d parts one has %d, one %d", most, least, largest)
		}
	}
	if parts := partition(nil, 2); len(parts) != 0 {
		t.Errorf("nothing in %d parts", len(parts))
	}
}
