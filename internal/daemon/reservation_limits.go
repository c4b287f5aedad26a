package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/source/reservations"
)

// reservationHost is what reservations need from the daemon. The caller of its methods holds d.mu.
type reservationHost struct{ *Daemon }

var _ reservations.Host = reservationHost{}

// forReservations returns a node as the source of reservations knows it.
func (n *node) forReservations() reservations.Node {
	is := reservations.Node{
		ID: n.id, Subject: n.res.Subject, IsUser: n.res.Kind == enforce.KindUser, Key: uint32(n.res.Key), User: n.userUID,
		Holding: n.Holding().Reservation(), Worth: n.Reserved, Grant: n.Requested[enforce.OwnerAdmin].Grant,
	}
	for owner := range n.Requested {
		is.Requested[owner] = n.Requested[owner].Reserve
	}
	return is
}

// asLink returns a link as the source of reservations knows it; n may be nil, or another node.
func (n *node) asLink() reservations.Link {
	if n == nil || n.res.Kind != enforce.KindLink {
		return reservations.Link{}
	}
	return reservations.Link{ID: n.id, Subject: n.res.Subject, BytesPerSec: n.sendingLimit()}
}

// Nodes implements reservations.Host.
func (h reservationHost) Nodes(yield func(reservations.Node) bool) {
	for _, n := range h.nodes.Sorted() {
		hasGrant := n.Requested[enforce.OwnerAdmin].Grant != limit.Grant{}
		if (hasGrant || n.reserves()) && !yield(n.forReservations()) {
			return
		}
	}
}

// reserves reports whether an owner has requested a reservation.
func (n *node) reserves() bool {
	for owner := range n.Requested {
		if n.Requested[owner].Reserve.SliceNS != 0 {
			return true
		}
	}
	return false
}

// Link implements reservations.Host.
func (h reservationHost) Link(name string) reservations.Link {
	for _, n := range h.nodes.WithSubject(api.Subject{Kind: api.KindLink, ID: name}) {
		if link := n.asLink(); link.ID != 0 {
			return link
		}
	}
	return reservations.Link{}
}

// LinkOf implements reservations.Host.
func (h reservationHost) LinkOf(node uint32) reservations.Link { return h.nodes.Get(node).asLink() }

// CountsAs implements reservations.Host.
func (h reservationHost) CountsAs(uid uint32) uint32 { return h.countsAs(uid) }

// Ended implements reservations.Host.
func (h reservationHost) Ended() map[uint32]bool { return h.endedTrees() }

// Promised implements reservations.Host.
func (h reservationHost) Promised(link uint32) uint64 {
	all := h.observe.Guarantees(h.draft(), enforce.Up)
	return all.In(link, link) - all.Only(h.endedTrees()).In(link, link)
}

// Sockets implements reservations.Host.
func (h reservationHost) Sockets() []enforce.SocketReservation { return h.observe.SocketReservations() }

// SetWorth implements reservations.Host.
func (h reservationHost) SetWorth(node uint32, is plan.Worth) {
	if n := h.nodes.Get(node); n != nil {
		n.Reserved = is
		h.once(n, h.apply(n))
	}
}

// Release implements reservations.Host.
func (h reservationHost) Release(node uint32, owner enforce.Owner) error {
	n := h.nodes.Get(node)
	if n == nil {
		return nil
	}
	next := *n
	next.Requested[owner] = next.Requested[owner].Released()
	next.Reserved = h.reservations.Worth(next.Holding().Reservation())
	return h.settle(n, &next, "the daemon")
}

// reserveSocket carries out a program's request for its socket, and returns the reservation that holds then.
func (d *Daemon) reserveSocket(r enforce.Request) (enforce.Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return enforce.Answer{}, unix.EOPNOTSUPP
	}
	return d.reservations.OfSocket(r)
}
