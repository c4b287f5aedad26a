package netdevice

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
)

const (
	// turnTime is how long one look at the devices may enter devices that are down.
	turnTime = 100 * time.Millisecond
	// TurnTimeUp is how long one look may enter devices that are up. A look may leave such a device for the next look.
	// Until then, its egress that is too far ahead of a clock is dropped. For its ingress, TCP's windows alone enforce
	// the limits until then.
	TurnTimeUp = 500 * time.Millisecond
)

// Turn bounds how long a look at the devices holds the lock that every command waits for. To enter a device takes a
// grace period of the kernel's, and a thousand devices take ten seconds and more. A look that would take too long
// leaves devices for the next one: first those that are down, by which no packet goes, and at last also those that are
// up.
type Turn struct {
	Up     time.Duration // how long devices that are up are entered
	UpOnly bool          // all devices that are down are left

	began time.Time
	some  bool // a device was entered
	left  bool // a device was left
}

// leaves reports whether a device is left. A known device was entered before, or by an earlier process.
func (t *Turn) leaves(l netlink.Link, known bool) bool {
	if known {
		return false
	}
	isUp, bound := l.Attrs().Flags&net.FlagUp != 0, turnTime
	if isUp {
		bound = t.Up
	}
	if t.UpOnly && !isUp || t.some && time.Since(t.began) > bound {
		t.left = true
		return true
	}
	t.some = true
	return false
}

// enters returns a function for follow that enters a device, unless the turn leaves it.
func (t *Turn) enters(known map[int]bpf.Device, enter func(l netlink.Link, flags uint32) error) func(l netlink.Link, flags uint32) error {
	return func(l netlink.Link, flags uint32) error {
		if _, is := known[l.Attrs().Index]; t.leaves(l, is) {
			return nil
		}
		return enter(l, flags)
	}
}

// Rest starts another look when a look at the devices has left some.
type Rest struct{ waits atomic.Bool }

// Look calls again soon, in a goroutine; again looks at the devices once more. One call waits at a time. The caller
// holds the lock that again takes.
func (r *Rest) Look(again func()) {
	if !r.waits.CompareAndSwap(false, true) {
		return
	}
	go func() {
		r.waits.Store(false)
		again()
	}()
}
