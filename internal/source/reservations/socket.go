package reservations

import (
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// A program reserves for one of its sockets by an option (include/netnice.h). The kernel side keeps the reservation,
// which goes with the socket.

// OfSocket carries out a program's request for its socket, and returns the reservation that holds then.
func (s *Source) OfSocket(r enforce.Request) (a enforce.Answer, err error) {
	had, found, err := s.kernel.Asker(r.Number)
	if err != nil {
		return a, err
	}
	link := s.host.LinkOf(had.Link)
	if !found || link.BytesPerSec == 0 {
		return a, unix.ENODEV
	}
	want, err := requestedOf(r, had, link)
	if err != nil {
		return a, err
	}
	left := s.leftFor(r, had, link)
	if !r.Ask {
		if err = s.admitSocket(r, had, want, left); err == nil {
			err = s.kernel.Reserve(want)
		}
		if err == nil {
			s.log.Info("reserved by a socket", "pid", r.PID, "by", r.UID, "link", link.Subject.ID, "bytes_per_sec", want.BytesPerSec)
		} else {
			want = had // the reservation in force
		}
	}
	return enforce.Answer{BytesPerSec: want.BytesPerSec, SocketSlice: want.SocketSlice, LeftBytesPerSec: left - min(left, want.BytesPerSec)}, err
}

// requestedOf returns the reservation that a program requests for its socket, or has if it only asks.
func requestedOf(r enforce.Request, had enforce.SocketReservation, link Link) (enforce.SocketReservation, error) {
	want := had
	if !r.Ask {
		want.SocketSlice = *r.Reserve
	}
	want.Link, want.BytesPerSec = link.ID, 0
	switch {
	case want.SliceNS == 0:
		want.SocketSlice = enforce.SocketSlice{}
	case want.PeriodNS < limit.MinPeriodNS || want.PeriodNS > limit.MaxPeriodNS || want.SliceNS > want.PeriodNS:
		return want, unix.EINVAL
	default:
		want.BytesPerSec = plan.RateOf(link.BytesPerSec, want.SliceNS, want.PeriodNS)
	}
	return want, nil
}

// admitSocket refuses a reservation of a program whose user was granted none, and one beyond what is left.
func (s *Source) admitSocket(r enforce.Request, had, want enforce.SocketReservation, left uint64) error {
	switch {
	case want.SliceNS != 0 && !r.Admin && (s.grantedTo(had.UID, s.host.LinkOf(want.Link)) == 0 || s.host.CountsAs(r.UID) != had.UID):
		return unix.EPERM
	case want.BytesPerSec > left:
		return unix.EBUSY
	}
	return nil
}

// leftFor returns the most that a socket could have, including its present reservation.
func (s *Source) leftFor(r enforce.Request, had enforce.SocketReservation, link Link) uint64 {
	taken := s.host.Promised(link.ID)
	if had.SliceNS != 0 && had.Link == link.ID {
		taken -= min(taken, had.BytesPerSec)
	}
	left := plan.Enclosing{BytesPerSec: link.BytesPerSec, Taken: taken}.Left()
	if !r.Admin {
		granted := s.grantedTo(had.UID, link)
		left = min(left, granted-min(granted, s.grantUsed(had.UID, link, 0, had.Cookie)))
	}
	return left
}

// followSockets updates the worth of socket reservations after a link has changed. A reservation on a link without a
// limit ends.
func (s *Source) followSockets() error {
	for _, had := range s.host.Sockets() {
		next := had
		if link := s.host.LinkOf(had.Link); link.BytesPerSec == 0 {
			next.SocketSlice = enforce.SocketSlice{}
		} else {
			next.BytesPerSec = plan.RateOf(link.BytesPerSec, had.SliceNS, had.PeriodNS)
		}
		if next == had {
			continue
		}
		if err := s.kernel.Reserve(next); err != nil {
			return err
		}
	}
	return nil
}
