package daemon

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// subordinates holds the user ids that count as another user's, and the properties of the file when it was read.
type subordinates struct {
	list     atomic.Pointer[[]enforce.Subordinates] // read without a lock
	changed  time.Time
	size     int64
	again    time.Time       // when to read the file again because users in it are not known; zero = not
	complain string          // logged already
	lookUps  account.LookUps // look-ups of these users
	hanging  bool            // the log says that some look-ups have no answer
}

const (
	// subordinatesSoon is the delay before users with a pending look-up are read again. subordinatesLate is the delay
	// for users that the name service did not know: most of them are gone. After a look-up without an answer it is
	// account.MissingPause.
	subordinatesSoon = time.Second
	subordinatesLate = 10 * time.Minute
)

// readSubordinates reads the file of subordinate user ids if it has changed, and passes them to the kernel side. A
// missing file means that there are none. After an error the former ids stay. It waits for no look-up: a directory's
// user counts once a look-up has an answer.
func (d *Daemon) readSubordinates() {
	var changed time.Time
	var size int64
	if info, err := os.Stat(d.opts.Subordinates); err == nil {
		changed, size = info.ModTime(), info.Size()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, now := &d.subordinates, d.now()
	due := !s.again.IsZero() && !now.Before(s.again)
	if d.isDown || changed.Equal(s.changed) && size == s.size && !due {
		return
	}
	found, err := d.loadSubordinates()
	if err != nil {
		if text := err.Error(); text != s.complain {
			s.complain = text
			d.log.Warn("whose user ids are whose is not known", "err", err)
		}
		return
	}
	s.changed, s.size, s.complain = changed, size, ""
	if s.schedule(found, now) {
		d.log.Warn("the name service does not answer who some users are: the user ids that they were given count as users of their own until it does",
			"file", d.opts.Subordinates, "lines", found.unanswered)
	}
}

// usersFound is the result of the look-ups of the users in the file.
type usersFound struct {
	missing              error // of a user that is not known, nil = all are known
	answered, unanswered int   // look-ups
}

// loadSubordinates reads the file of subordinate user ids, and passes them to the kernel side if they are others than
// before. The caller holds d.mu.
func (d *Daemon) loadSubordinates() (found usersFound, err error) {
	list, missing, err := identity.Subordinates(d.opts.Subordinates, func(name string) (uint32, error) {
		uid, err := d.resolver.Accounts().UIDSoon(name)
		if account.IsAnswer(err) {
			found.answered++
		} else {
			found.unanswered++
		}
		return uid, err
	})
	if err != nil {
		return found, err
	}
	if known := d.subordinates.list.Load(); known == nil || !slices.Equal(*known, list) {
		if err := d.kernel.SetSubordinates(list); err != nil {
			return found, err
		}
	}
	d.subordinates.list.Store(&list)
	found.missing = missing
	return found, nil
}

// schedule sets when the file is read again because some of its users are not known. It reports whether look-ups hang
// that did not hang before.
func (s *subordinates) schedule(found usersFound, now time.Time) (hangs bool) {
	s.again = time.Time{}
	if errors.Is(found.missing, account.ErrPending) && !s.lookUps.AreOver(now, found.answered) {
		s.again = now.Add(subordinatesSoon)
		return false
	}
	s.lookUps = account.LookUps{}
	switch {
	case found.unanswered > 0:
		s.again = now.Add(account.MissingPause)
	case found.missing != nil:
		s.again = now.Add(subordinatesLate)
	}
	hangs = found.unanswered > 0 && !s.hanging
	s.hanging = found.unanswered > 0
	return hangs
}

// countsAs returns the user whose quota a user id uses.
func (d *Daemon) countsAs(uid uint32) uint32 {
	if list := d.subordinates.list.Load(); list != nil {
		return enforce.OwnerOf(uid, *list)
	}
	return uid
}

// countOf counts what all users have that count as one user (countsAs). The function counts it for the users
// from a first to a last one.
func (d *Daemon) countOf(as uint32, count func(first, last uint32) int) (all int) {
	counted := d.countsAs(as) != as
	if list := d.subordinates.list.Load(); list != nil {
		for _, r := range *list {
			if r.Owner == as {
				all += count(r.First, r.Last)
				counted = counted || r.First <= as && as <= r.Last
			}
		}
	}
	if !counted {
		all += count(as, as)
	}
	return all
}

// adminGroup returns the number of the group whose members may do everything, nil while no group of that name is known.
// A directory may come up later than the daemon, which is ready before the network: watchAdminGroup.
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

// adminGroupPause is the interval at which an unknown group is looked up again.
const adminGroupPause = time.Minute

// watchAdminGroup looks the administrators' group up again while it is not known. It never waits; next is the time of
// the next look-up.
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
