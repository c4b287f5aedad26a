package daemon

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// reserved is the worth of a reservation while its link has a limit: the reserved part of that limit.
type reserved struct {
	link        uint32 // node of the link
	bytesPerSec uint64
}

// promised returns the guaranteed egress of the node, in bytes/s.
func (n *node) promised() uint64 {
	if n.promisesNothing() {
		return 0
	}
	if n.holding().Reservation() != (limit.Slice{}) {
		return n.reserved.bytesPerSec
	}
	return n.holding().Guarantee()
}

// worth returns the worth of a reservation on a link with a limit on sending; without that limit it is nothing. The
// caller holds d.mu.
func (d *Daemon) worth(s limit.Slice) (r reserved) {
	link := d.linkOf(s)
	if link == nil || link.sendingLimit() == 0 {
		return r
	}
	return reserved{link: link.id, bytesPerSec: link.slice(s.SliceNS, s.PeriodNS)}
}

// slice returns the worth of sliceNS in each periodNS of a link's limit on sending, in bytes/s.
func (n *node) slice(sliceNS, periodNS uint64) uint64 {
	return max(limit.PartOf(n.sendingLimit(), sliceNS, periodNS), 1)
}

// linkOf returns the node of a reservation's link, nil if the link has none. The caller holds d.mu.
func (d *Daemon) linkOf(s limit.Slice) *node {
	if s == (limit.Slice{}) {
		return nil
	}
	for _, n := range d.nodes.WithSubject(api.Subject{Kind: api.KindLink, ID: s.Link}) {
		if n.res.Kind == enforce.KindLink {
			return n
		}
	}
	return nil
}

// checkReserve refuses a reservation on a link without a limit, and one beyond the grant. The caller holds d.mu.
func (d *Daemon) checkReserve(by auth.Actor, n *node) error {
	s := n.requested[by.Owner()].Reserve
	if s == (limit.Slice{}) {
		return nil
	}
	if d.worth(s).link != 0 {
		return d.checkGranted(by, n)
	}
	return &api.Error{
		Code:    api.CodeConflict,
		Message: fmt.Sprintf("what %s carries is not known: no limit on sending stands on it of which a part could be reserved", s.Link),
		Hint:    "netnice link " + s.Link + " --up RATE",
	}
}

// followReservations updates the worth of reservations after a link has changed. The caller holds d.mu.
func (d *Daemon) followReservations() {
	for _, n := range d.nodes.Sorted() {
		s := n.holding().Reservation()
		if s == (limit.Slice{}) {
			continue
		}
		if now := d.worth(s); now != n.reserved {
			n.reserved = now
			d.once(n, d.apply(n))
		}
	}
	if err := d.followSockets(); err != nil {
		d.log.Warn("reservations of sockets were not renewed", "err", err)
	}
}

// endReservations releases the reservations whose time is over. The caller holds d.mu.
func (d *Daemon) endReservations(now time.Time) {
	for n := range d.nodes.All() {
		for owner := range n.requested {
			s := n.requested[owner].Reserve
			if !s.IsOver(now) {
				continue
			}
			if err := d.release(n, enforce.Owner(owner)); err != nil {
				d.once(n, err)
				continue
			}
			d.log.Info("the time of a reservation is over", "subject", n.res.Subject.String(), "link", s.Link)
		}
	}
}

// release takes an owner's reservation of a node back. The caller holds d.mu.
func (d *Daemon) release(n *node, owner enforce.Owner) error {
	next := *n
	next.requested[owner] = next.requested[owner].Merge(api.Wish{Reserve: &api.Reservation{}})
	next.reserved = d.worth(next.holding().Reservation())
	return d.settle(n, &next, "the daemon")
}
