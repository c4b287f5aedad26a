package daemon

import "sync"

// complaints remembers the failure that was logged last.
type complaints struct {
	mu   sync.Mutex
	last string
}

// complain logs a failure of the tick, or of what follows a change, once while it lasts.
func (d *Daemon) complain(err error) {
	d.complaints.mu.Lock()
	defer d.complaints.mu.Unlock()
	if text := err.Error(); text != d.complaints.last {
		d.complaints.last = text
		d.log.Warn("the limits were not looked after", "err", err)
	}
}
