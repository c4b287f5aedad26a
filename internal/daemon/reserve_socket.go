package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// A program reserves for one of its sockets by an option (include/netnice.h). The kernel side keeps the reservation,
// which goes with the socket.

// reserveSocket carries out a program's request for its socket, and returns the reservation that holds then.
func (d *Daemon) reserveSocket(r enforce.Request) (a enforce.Answer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return a, unix.EOPNOTSUPP
	}
	s, found, err := d.kernel.Asker(r.Number)
	if err != nil {
		return a, err
	}
	link := d.nodes.Get(s.Link)
	if !found || link == nil || link.sendingLimit() == 0 {
		return a, unix.ENODEV
	}
	want, err := wantedOf(r, s, link)
	if err != nil {
		return a, err
	}
	left := d.leftFor(r, s, link)
	if !r.Ask {
		if err = d.admitSocket(r, s, want, left); err == nil {
			err = d.kernel.Reserve(want)
		}
		if err == nil {
			d.log.Info("reserved by a socket", "pid", r.PID, "by", r.UID, "link", link.res.Subject.ID, "bytes_per_sec", want.BytesPerSec)
		} else {
			want = s // the reservation in force
		}
	}
	return enforce.Answer{BytesPerSec: want.BytesPerSec, SocketSlice: want.SocketSlice, LeftBytesPerSec: left - min(left, want.BytesPerSec)}, err
}

// wantedOf returns the reservation that a program requests for its socket, or has if it only asks.
func wantedOf(r enforce.Request, s enforce.SocketReservation, link *node) (enforce.SocketReservation, error) {
	want := s
	if !r.Ask {
		want.SocketSlice = *r.Reserve
	}
	want.Link, want.BytesPerSec = link.id, 0
	switch {
	case want.SliceNS == 0:
		want.SocketSlice = enforce.SocketSlice{}
	case want.PeriodNS < limit.MinPeriodNS || want.PeriodNS > limit.MaxPeriodNS || want.SliceNS > want.PeriodNS:
		return want, unix.EINVAL
	default:
		want.BytesPerSec = plan.RateOf(link.sendingLimit(), want.SliceNS, want.PeriodNS)
	}
	return want, nil
}

// admitSocket refuses a reservation of a program whose user was granted none, and one beyond what is left. The caller
// holds d.mu.
func (d *Daemon) admitSocket(r enforce.Request, s, want enforce.SocketReservation, left uint64) error {
	switch {
	case want.SliceNS != 0 && !r.Admin && (d.grantedTo(s.UID, d.nodes.Get(want.Link)) == 0 || d.countsAs(r.UID) != s.UID):
		return unix.EPERM
	case want.BytesPerSec > left:
		return unix.EBUSY
	}
	return nil
}

// leftFor returns the most that a socket could have, including its present reservation. The caller holds d.mu.
func (d *Daemon) leftFor(r enforce.Request, s enforce.SocketReservation, link *node) uint64 {
	taken := d.guaranteedIn(link, link, enforce.Up)
	if s.SliceNS != 0 && s.Link == link.id {
		taken -= min(taken, s.BytesPerSec)
	}
	left := plan.Enclosing{BytesPerSec: link.sendingLimit(), Taken: taken}.Left()
	if !r.Admin {
		granted := d.grantedTo(s.UID, link)
		left = min(left, granted-min(granted, d.grantUsed(s.UID, link.id, 0, s.Cookie)))
	}
	return left
}

// followSockets updates the worth of socket reservations after a link has changed. A reservation on a link without a
// limit ends. The caller holds d.mu.
func (d *Daemon) followSockets() error {
	for _, s := range d.observe.SocketReservations() {
		next, link := s, d.nodes.Get(s.Link)
		if link == nil || link.res.Kind != enforce.KindLink || link.sendingLimit() == 0 {
			next.SocketSlice = enforce.SocketSlice{}
		} else {
			next.BytesPerSec = plan.RateOf(link.sendingLimit(), s.SliceNS, s.PeriodNS)
		}
		if next == s {
			continue
		}
		if err := d.kernel.Reserve(next); err != nil {
			return err
		}
	}
	return nil
}
