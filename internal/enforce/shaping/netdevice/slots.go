package netdevice

import (
	"errors"
	"fmt"

	"github.com/netnice/netnice/internal/bpf"
)

// ErrTooMany says that a bound on devices or namespaces is reached.
var ErrTooMany = errors.New("too many")

// Slots are the numbers of devices over all network namespaces. A packet carries the slot of the device by which it
// came or goes. The search for a free slot needs no list of the devices that have one. On a machine with more devices
// than slots, each change of a device asks for a slot for every device that was refused.
type Slots struct {
	last  uint32 // slot that was given last
	taken [bpf.MaxDevices]bool
	count int
}

// Free returns a slot that no device has; the caller then takes it. Slots are given in rotation, as a packet may still
// carry the slot of a device that has gone.
func (s *Slots) Free() (uint32, error) {
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
	return 0, fmt.Errorf("%w: limits on more than %d devices", ErrTooMany, bpf.MaxDevices-1)
}

// Take records that a device has the slot. Slot 0 stands for none.
func (s *Slots) Take(slot uint32) { s.note(slot, true) }

// Release records that no device has the slot any more.
func (s *Slots) Release(slot uint32) { s.note(slot, false) }

func (s *Slots) note(slot uint32, taken bool) {
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
