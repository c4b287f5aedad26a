// Package cpu gives a process and its descendants a share of the processors, by groups of the
// kernel's CPU controller: folders of cgroup v1 or v2, or scopes where systemd has the tree. It
// decides nothing, and what it makes is taken away again without a trace.
package cpu

import (
	"math"
	"time"
)

// Share is what a group has of the processors.
type Share struct {
	// SliceNS of processor time are the most in each PeriodNS, of all processors together; 0 =
	// no ceiling.
	SliceNS, PeriodNS uint64
	// Weight beside others who want the same processor; OrdinaryWeight is a process's of nice 0.
	Weight uint64
	// Exact slices are over to within microseconds: KeepSlots has to see to that.
	Exact bool
}

// Bounds of Share.Weight, in the kernel's unit.
const (
	LeastWeight    = 2
	OrdinaryWeight = 1024
	MostWeight     = 262144
)

// The kernel notices at the tick that a slice is used up. 4 ms is the tick of most distributions'
// kernels, so a shorter slice comes out longer; and the period is as short as that allows.
const (
	leastSlice  = 4 * time.Millisecond
	shortPeriod = 20 * time.Millisecond
)

// makeUp is what of a slice may be made up for later. The kernel gives it out to processors in
// parts, and a program that moves between them, such as one that starts others, leaves some of it
// behind: without this it had 26 per cent of 30. More than the slice it never is in the long run.
const makeUp = 2 * time.Millisecond

// Bounds of set_power's n (tender, table 1); beyond MostPower it is more than one processor.
const (
	LeastPower = -255
	MostPower  = 100
)

// Ceiling is at most percent of one processor, from 1 on.
func Ceiling(percent int) (s Share) {
	slice := shortPeriod * time.Duration(percent) / 100
	period := shortPeriod
	if slice < leastSlice {
		slice, period = leastSlice, leastSlice*100/time.Duration(percent)
	}
	return Share{SliceNS: uint64(slice), PeriodNS: uint64(period), Weight: OrdinaryWeight}
}

// Bounds of a slot: the kernel's least quota, and the tenth of its longest period.
const (
	LeastSlot = time.Millisecond
	MostSlot  = 10 * time.Millisecond
)

// Slots is percent of one processor, 1 to MostPower, in slots (tender, 2.1.2) as even as can be: one
// of running to 100/percent - 1 of standing still, from 50 on percent/(100 - percent) to one.
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

// Nice is the nice value that a priority of -255 to 0 stands for: 19 to 0, evenly.
func Nice(priority int) int {
	return int(math.Round(float64(priority) / LeastPower * lowestNice))
}

// Priority is a share of the weight that the priority's nice value has: without a ceiling.
func Priority(priority int) Share {
	const step = 1.25 // of the kernel's weights from one nice value to the next
	weight := math.Round(OrdinaryWeight / math.Pow(step, float64(Nice(priority))))
	return Share{Weight: max(uint64(weight), LeastWeight)}
}
