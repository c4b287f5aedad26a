package daemon

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// worth returns the worth of a reservation on a link with a limit on sending; without that limit it is nothing. The
// caller holds d.mu.
func (d *Daemon) worth(s limit.Slice) plan.Worth {
	link := d.linkOf(s)
	if link == nil {
		return plan.Worth{}
	}
	return plan.WorthOf(s, link.id, link.sendingLimit())
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
	s := n.Requested[by.Owner()].Reserve
	if s == (limit.Slice{}) {
		return nil
	}
	if d.worth(s).Link != 0 {
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
		s := n.Holding().Reservation()
		if s == (limit.Slice{}) {
			continue
		}
		if now := d.worth(s); now != n.Reserved {
			n.Reserved = now
			d.once(n, d.apply(n))
		}
	}
	if err := d.followSockets(); err != nil {
		d.log.Warn("reservations of sockets were not renewed", "err", err)
	}
}

// release takes an owner's reservation of a node back. The caller holds d.mu.
func (d *Daemon) release(n *node, owner enforce.Owner) error {
	next := *n
	next.Requested[owner] = next.Requested[owner].Released()
	next.Reserved = d.worth(next.Holding().Reservation())
	return d.settle(n, &next, "the daemon")
}
