package identity

import (
	"sync/atomic"
	"time"
)

// LatestDevicePause is how often a LatestDevice looks at most.
const LatestDevicePause = time.Minute

// LatestDevice is the device of the default route as it was looked up last. A look reads all routes of the machine, and a
// router has hundreds of thousands. No caller waits for a look that is under way. The zero value has not looked yet.
type LatestDevice struct{ of atomic.Pointer[deviceAt] }

// deviceAt is the device at a time; "" = there is none, or it is being looked for.
type deviceAt struct {
	name string
	at   time.Time
}

// Learn looks for the device, unless the last look is recent or another one is under way.
func (l *LatestDevice) Learn(now time.Time, look func() string) {
	next, known := deviceAt{at: now}, l.of.Load()
	if known != nil {
		if now.Sub(known.at) < LatestDevicePause {
			return
		}
		next.name = known.name // for callers during this look
	}
	if !l.of.CompareAndSwap(known, &next) {
		return // another goroutine looks
	}
	l.of.Store(&deviceAt{name: look(), at: now})
}

// Name returns the device, "" if none is known.
func (l *LatestDevice) Name() string {
	if known := l.of.Load(); known != nil {
		return known.name
	}
	return ""
}
