package daemon

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// subordinates are the user ids that count as another's, and the file as it was when they
// were read.
type subordinates struct {
	list     atomic.Pointer[[]enforce.Subordinates] // read without a lock
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
	s.list.Store(&list)
	s.changed, s.size, s.complain = changed, size, ""
}

// countsAs is the user whose quota a user id uses.
func (d *Daemon) countsAs(uid uint32) uint32 {
	if list := d.subordinates.list.Load(); list != nil {
		return enforce.OwnerOf(uid, *list)
	}
	return uid
}

// adminGroup is the group whose members may do everything, nil if there is none of that
// name.
func (d *Daemon) adminGroup() *uint32 {
	if d.opts.AdminGroup == "" {
		return nil
	}
	gid, err := identity.Group(d.opts.AdminGroup)
	if err != nil {
		if !identity.IsNotFound(err) {
			d.log.Warn("the administrators' group is not known", "err", err)
		}
		return nil
	}
	return &gid
}
