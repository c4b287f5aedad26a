package daemon

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
)

// Datagrams to a host whose path is followed wait here for a bounded time, since their senders have no use for late
// packets. The kernel side drops datagrams that would wait longer.

const (
	// adaptBacklog is the default bound.
	adaptBacklog                        = uint64(time.Second)
	adaptBacklogLeast, adaptBacklogMost = uint64(10 * time.Millisecond), uint64(time.Minute)
)

// fillBacklog replaces a missing bound by the default; an older version of the file has none.
func (h *adaptHow) fillBacklog() {
	if h.BacklogNS == 0 {
		h.BacklogNS = adaptBacklog
	}
}

// boundBacklog bounds how long traffic to a host waits, from the first datagram on.
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
