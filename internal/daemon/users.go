package daemon

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// subordinates are the user ids that count as another's, and the file as it was when they
// were read.
type subordinates struct {
	list     atomic.Pointer[[]enforce.Subordinates] // read without a lock
	changed  time.Time
	size     int64
	again    time.Time // when the file is read again because users of it are not known; zero = not
	complain string    // logged already
}

const (
	// subordinatesSoon is when users are asked for again whom the name service is being asked for, subordinatesLate
	// when those are whom it did not know: most of them are gone.
	subordinatesSoon = time.Second
	subordinatesLate = 10 * time.Minute
)

// readSubordinates reads whose user ids are whose if the file has changed, and tells the
// kernel side. Without it what was read before counts. No user is waited for: one of a directory
// counts once he was looked up.
func (d *Daemon) readSubordinates() {
	var changed time.Time
	var size int64
	if info, err := os.Stat(d.opts.Subordinates); err == nil {
		changed, size = info.ModTime(), info.Size()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.subordinates
	now := d.now()
	due := !s.again.IsZero() && !now.Before(s.again)
	if d.isDown || changed.Equal(s.changed) && size == s.size && !due {
		return
	}
	list, missing, err := identity.Subordinates(d.opts.Subordinates, d.resolver.Accounts().UIDSoon)
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
	s.changed, s.size, s.again, s.complain = changed, size, time.Time{}, ""
	switch {
	case errors.Is(missing, account.ErrPending):
		s.again = now.Add(subordinatesSoon)
	case missing != nil:
		s.again = now.Add(subordinatesLate)
	}
}

// countsAs is the user whose quota a user id uses.
func (d *Daemon) countsAs(uid uint32) uint32 {
	if list := d.subordinates.list.Load(); list != nil {
		return enforce.OwnerOf(uid, *list)
	}
	return uid
}

// adminGroup is the number of the group whose members may do everything, as far as it is known: nil where there is
// none of that name. A directory may come up later than the daemon, which is ready before the network: watchAdminGroup.
func (d *Daemon) adminGroup(ctx context.Context) *uint32 {
	if d.opts.AdminGroup == "" {
		return nil
	}
	gid, err := d.resolver.Group(ctx, d.opts.AdminGroup)
	if err != nil {
		if !errors.Is(err, account.ErrUnknown) {
			d.log.Warn("the administrators' group is not known, and is looked up again", "err", err)
		}
		return nil
	}
	return &gid
}

// adminGroupPause is how often a group is looked up that is not known.
const adminGroupPause = time.Minute

// watchAdminGroup looks the administrators' group up again while it is not known, and waits for nothing; next is when.
func (d *Daemon) watchAdminGroup(next *time.Time) {
	now := d.now()
	if d.opts.AdminGroup == "" || d.admins.Load() != nil || now.Before(*next) {
		return
	}
	gid, err := d.resolver.Accounts().GIDSoon(d.opts.AdminGroup)
	switch {
	case errors.Is(err, account.ErrPending):
		return // the next tick has the answer
	case err != nil:
		*next = now.Add(adminGroupPause)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return
	}
	if err := d.kernel.SetAdminGroup(&gid); err != nil {
		*next = now.Add(adminGroupPause)
		d.log.Warn("the administrators' group is not told to the kernel", "group", d.opts.AdminGroup, "err", err)
		return
	}
	d.admins.Store(&gid)
	d.log.Info("the administrators' group is known by now", "group", d.opts.AdminGroup, "gid", gid)
}
