package probe

import "golang.org/x/sys/unix"

// first has the calling thread, which is locked, run before ordinary programs until the function
// that it returns is called: who is interrupted in mid-train measures his own machine. Trains are
// short. Users without the right send as they are.
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
