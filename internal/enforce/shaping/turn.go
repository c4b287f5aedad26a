package shaping

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
)

// turnTime is for how long one look at the devices enters those that are down.
const turnTime = 100 * time.Millisecond

// turn bounds how long a look at the devices holds the lock that every command waits for. To enter a
// device takes a grace period of the kernel's, so a thousand take ten seconds and more. By one that
// is down no packet goes: it is left for the next look where it would take too long.
type turn struct {
	began  time.Time
	upOnly bool // all that are down are left
	some   bool // one that is down was entered
	left   bool // one was left
}

// leaves says whether a device is left. One that is known was entered before, or by an earlier process.
func (t *turn) leaves(l netlink.Link, known bool) bool {
	if known || l.Attrs().Flags&net.FlagUp != 0 {
		return false
	}
	if t.upOnly || t.some && time.Since(t.began) > turnTime {
		t.left = true
		return true
	}
	t.some = true
	return false
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
