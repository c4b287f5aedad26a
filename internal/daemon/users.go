package daemon

import (
	"os"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// subordinates are the user ids that count as another's, and the file as it was when they
// were read.
type subordinates struct {
	list     []enforce.Subordinates
	changed  time.Time
	size     int64
	complain string // logged already
}

// readSubordinates reads whose user ids are whose if the file has changed, and tells the
// kernel side. Without it what was read before counts.
func (d *Daemon) readSubordinates() {
	var changed time.Time
	var size int64
	if info, err := os.Stat(d.opts.Subordinates); err == nil {
		changed, size = info.ModTime(), info.Size()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.subordinates
	if d.isDown || changed.Equal(s.changed) && size == s.size {
		return
	}
	list, err := identity.Subordinates(d.opts.Subordinates)
	if err == nil {
		err = d.kernel.SetSubordinates(list)
	}
	if err != nil {
		if text := err.Error(); text != s.complain {
			s.complain = text
			d.log.Warn("whose user ids are whose is not known", "err", err)
		}
		return
	}
	*s = subordinates{list: list, changed: changed, size: size}
}

// countsAs is the user whose quota a user id uses. The caller holds d.mu.
func (d *Daemon) countsAs(uid uint32) uint32 { return identity.OwnerOf(uid, d.subordinates.list) }
