package shaping

import (
	"fmt"

	"github.com/netnice/netnice/internal/bpf"
)

// slots are the numbers of devices over all network namespaces. A packet carries the slot of the device by which it
// came or goes. The search for a free slot needs no list of the devices that have one. On a machine with more devices
// than slots, each change of a device asks for a slot for every device that was refused.
type slots struct {
	last  uint32 // slot that was given last
	taken [bpf.MaxDevices]bool
	count int
}

// free returns a slot that no device has; putDevice then takes it. Slots are given in rotation, as a packet may still
// carry the slot of a device that has gone.
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

// take records that a device has the slot. Slot 0 stands for none.
func (s *slots) take(slot uint32) { s.note(slot, true) }

// release records that no device has the slot any more.
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
