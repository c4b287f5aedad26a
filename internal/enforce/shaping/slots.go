package shaping

import (
	"fmt"

	"github.com/netnice/netnice/internal/bpf"
)

// slots are the numbers that packets carry of the devices by which they came or go, over all
// network namespaces. No look at the devices that have one is needed to find a free one: on a
// machine with more devices than slots each change of a device asks for as many as are refused.
type slots struct {
	last  uint32 // that was given
	taken [bpf.MaxDevices]bool
	count int
}

// free is a slot that no device has, which putDevice takes. They go round, as a packet of a device
// that went may still carry its slot.
func (s *slots) free() (uint32, error) {
	if s.count < bpf.MaxDevices-1 {
		for range bpf.MaxDevices {
			if s.last++; s.last >= bpf.MaxDevices {
				s.last = 1
			}
			if !s.taken[s.last] {
				return s.last, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: limits on more than %d devices", errTooMany, bpf.MaxDevices-1)
}

// take notes that a device has the slot. 0 is none.
func (s *slots) take(slot uint32) { s.note(slot, true) }

// release notes that no device has it any more.
func (s *slots) release(slot uint32) { s.note(slot, false) }

func (s *slots) note(slot uint32, taken bool) {
	if slot == 0 || slot >= bpf.MaxDevices || s.taken[slot] == taken {
		return
	}
	s.taken[slot] = taken
	if taken {
		s.count++
	} else {
		s.count--
	}
}
