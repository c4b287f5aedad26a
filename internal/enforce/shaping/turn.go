package shaping

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
)

const (
	// turnTime is for how long one look at the devices enters those that are down.
	turnTime = 100 * time.Millisecond
	// turnTimeUp is for how long it enters those that are up. Where a look leaves one, what is too much of what leaves
	// by it is dropped until the next look, and of what comes in by it TCP's windows alone hold the limit.
	turnTimeUp = 500 * time.Millisecond
)

// turn bounds how long a look at the devices holds the lock that every command waits for. To enter a
// device takes a grace period of the kernel's, so a thousand take ten seconds and more. Where it would take too long
// those that are down, by which no packet goes, are left for the next look, and at last also those that are up.
type turn struct {
	began  time.Time
	up     time.Duration // for so long those that are up are entered
	upOnly bool          // all that are down are left
	some   bool          // one was entered
	left   bool          // one was left
}

// leaves says whether a device is left. One that is known was entered before, or by an earlier process.
func (t *turn) leaves(l netlink.Link, known bool) bool {
	if known {
		return false
	}
	isUp, bound := l.Attrs().Flags&net.FlagUp != 0, turnTime
	if isUp {
		bound = t.up
	}
	if t.upOnly && !isUp || t.some && time.Since(t.began) > bound {
		t.left = true
		return true
	}
	t.some = true
	return false
}

// enters returns a function for followLinks that enters a device, unless the turn leaves it.
func (t *turn) enters(known map[int]bpf.Device, enter func(l netlink.Link, flags uint32) error) func(l netlink.Link, flags uint32) error {
	return func(l netlink.Link, flags uint32) error {
		if _, is := known[l.Attrs().Index]; t.leaves(l, is) {
			return nil
		}
		return enter(l, flags)
	}
}

// rest has the devices looked at again that a look has left.
type rest struct{ waits atomic.Bool }

// look calls a function soon which looks again; one call waits at a time. The caller holds the lock
// that it takes.
func (r *rest) look(again func()) {
	if !r.waits.CompareAndSwap(false, true) {
		return
	}
	go func() {
		r.waits.Store(false)
		again()
	}()
}
