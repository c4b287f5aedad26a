package daemon

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
)

// Datagrams to a host whose path is followed wait here for a bounded time, since who sends them has no use for
// what arrives late; the kernel side drops what would wait for longer.

const (
	// adaptBacklog is that time if nothing else is said.
	adaptBacklog                        = uint64(time.Second)
	adaptBacklogLeast, adaptBacklogMost = uint64(10 * time.Millisecond), uint64(time.Minute)
)

// fillBacklog puts in the usual bound where none was said, as in an older version of the file.
func (h *adaptHow) fillBacklog() {
	if h.BacklogNS == 0 {
		h.BacklogNS = adaptBacklog
	}
}

// boundBacklog bounds how long what is sent there waits, from the first datagram on.
func (d *Daemon) boundBacklog(subject api.Subject, ns uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.limiting(subject)
	if n == nil || n.backlog == ns || d.isDown {
		return nil
	}
	before := n.backlog
	n.backlog = ns
	if err := d.apply(n); err != nil {
		n.backlog = before
		return fmt.Errorf("bound what waits: %w", err)
	}
	return nil
}
