package probe

import "golang.org/x/sys/unix"

// first makes the calling thread, which is locked, run before ordinary programs until the caller calls the function
// that it returns. A sender that is interrupted in mid-train measures its own machine. Trains are
// short. Users without the right send at their ordinary priority.
func first() (restore func()) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return func() {}
	}
	wanted := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if unix.SchedSetAttr(0, wanted, 0) != nil {
		return func() {}
	}
	return func() { _ = unix.SchedSetAttr(0, before, 0) }
}
