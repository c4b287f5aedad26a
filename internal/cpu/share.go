// Package cpu gives a process and its descendants a share of the processors, by groups of the
// kernel's CPU controller: folders of cgroup v1 or v2, or scopes where systemd has the tree. It
// decides nothing, and it removes its groups without a trace.
package cpu

import (
	"math"
	"time"
)

// Share is a group's share of the processors.
type Share struct {
	// SliceNS is the most processor time in each PeriodNS, on all processors together; 0 = no ceiling.
	SliceNS, PeriodNS uint64
	// Weight counts beside other groups that want the same processor. OrdinaryWeight is the weight of a process of
	// nice 0.
	Weight uint64
	// Exact slices end on time to within microseconds. KeepSlots has to enforce that.
	Exact bool
}

// Bounds of Share.Weight, in the kernel's unit.
const (
	LeastWeight    = 2
	OrdinaryWeight = 1024
	MostWeight     = 262144
)

// The kernel notices only at the tick that a slice is used up. 4 ms is the tick of most distributions'
// kernels, so a shorter slice comes out longer. The period is as short as that bound on the slice allows.
const (
	leastSlice  = 4 * time.Millisecond
	shortPeriod = 20 * time.Millisecond
)

// makeUp is the part of a slice that a group may use later (cpu.max.burst). The kernel hands a slice out to
// processors in parts. A program that moves between them, such as one that starts others, leaves some parts
// behind: without makeUp it had 26 per cent of 30. In the long run a group never gets more than its slices.
const makeUp = 2 * time.Millisecond

// Bounds of set_power's n (tender, table 1). Values beyond MostPower mean more than one processor.
const (
	LeastPower = -255
	MostPower  = 100
)

// Ceiling returns a share of at most percent of one processor; percent is at least 1.
func Ceiling(percent int) (s Share) {
	slice := shortPeriod * time.Duration(percent) / 100
	period := shortPeriod
	if slice < leastSlice {
		slice, period = leastSlice, leastSlice*100/time.Duration(percent)
	}
	return Share{SliceNS: uint64(slice), PeriodNS: uint64(period), Weight: OrdinaryWeight}
}

// LeastSlot is the kernel's least quota, MostSlot a hundredth of its longest period: one per cent has a period of 100
// slots.
const (
	LeastSlot = time.Millisecond
	MostSlot  = 10 * time.Millisecond
)

// Slots returns percent of one processor, 1 to MostPower, in slots (tender, 2.1.2) that are as even as possible.
// Below 50 per cent the group runs for one slot and then stands still for 100/percent - 1 slots. At 50 per cent and
// more it runs for percent/(100 - percent) slots and stands still for one.
func Slots(percent int, slot time.Duration) Share {
	s := Share{Weight: OrdinaryWeight, Exact: true}
	switch {
	case percent >= MostPower:
		return Ceiling(percent)
	case percent <= MostPower/2:
		s.SliceNS, s.PeriodNS = uint64(slot), uint64(slot)*100/uint64(percent)
	default:
		s.PeriodNS = uint64(slot) * 100 / uint64(100-percent)
		s.SliceNS = s.PeriodNS - uint64(slot)
	}
	return s
}

const lowestNice = 19

// Nice returns the nice value of a priority: it maps -255 to 0 evenly to 19 to 0.
func Nice(priority int) int {
	return int(math.Round(float64(priority) / LeastPower * lowestNice))
}

// Priority returns a share without a ceiling, with the weight of the priority's nice value.
func Priority(priority int) Share {
	const step = 1.25 // ratio of the kernel's weights from one nice value to the next
	weight := math.Round(OrdinaryWeight / math.Pow(step, float64(Nice(priority))))
	return Share{Weight: max(uint64(weight), LeastWeight)}
}
