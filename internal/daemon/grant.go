package daemon

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// The administrator grants users a part of a link that they may reserve for their own processes and connections. A
// grant is no promise: the grants of several users together may be more than the link has.

// grantedTo returns how much of a link a user may reserve in all, in bytes/s. The caller holds d.mu.
func (d *Daemon) grantedTo(uid uint32, link *node) uint64 {
	for n := range d.nodes.All() {
		if n.res.Kind != enforce.KindUser || d.countsAs(uint32(n.res.Key)) != uid {
			continue
		}
		if g := n.Requested[enforce.OwnerAdmin].Grant; g.Link == link.res.Subject.ID {
			return limit.PartOf(link.sendingLimit(), uint64(g.PPM), limit.WholePPM)
		}
	}
	return 0
}

// usersOwn returns the reservation that a user has made for the node, and its link. The caller holds d.mu.
func (d *Daemon) usersOwn(n *node) plan.Worth { return d.worth(n.Requested[enforce.OwnerUser].Reserve) }

// grantUsed returns how much of a link a user has reserved, without the reservations of one node and one socket. The
// caller holds d.mu.
func (d *Daemon) grantUsed(uid, link, butNode uint32, butCookie uint64) (sum uint64) {
	for n := range d.nodes.All() {
		if own := d.usersOwn(n); n.id != butNode && own.Link == link && d.countsAs(n.userUID) == uid {
			sum += own.BytesPerSec
		}
	}
	for _, s := range d.observe.SocketReservations() {
		if s.Cookie != butCookie && s.UID == uid && s.Link == link {
			sum += s.BytesPerSec
		}
	}
	return sum
}

// checkGranted refuses a user's reservation for a node that exceeds the grant. The caller holds d.mu.
func (d *Daemon) checkGranted(by auth.Actor, n *node) error {
	own := d.usersOwn(n)
	if by.Root() || own.Link == 0 {
		return nil
	}
	uid, link := d.countsAs(by.UID), d.nodes.Get(own.Link)
	most := d.grantedTo(uid, link)
	used := d.grantUsed(uid, link.id, n.id, 0)
	if own.BytesPerSec <= most-min(most, used) {
		return nil
	}
	if most == 0 {
		w := api.Wish{Reserve: n.Requested[enforce.OwnerUser].Reserve.API(identity.BootTimeNS())}
		return auth.Check(by, auth.Guarantee, auth.Target{Subject: n.res.Subject, Wish: w})
	}
	return auth.Denied(fmt.Sprintf("a reservation of %s is more than you were granted of %s: %s, of which %s are reserved already",
		rateText(own.BytesPerSec), link.res.Subject, rateText(most), rateText(used)),
		"ask for what is left, or the administrator for more: sudo netnice reserve --user NAME --link "+link.res.Subject.ID+" --grant PERCENT")
}

// followGrant releases a user's reservations on a link that exceed the present grant, the latest first. The caller
// holds d.mu.
func (d *Daemon) followGrant(uid uint32, link string) {
	uid = d.countsAs(uid)
	l := d.linkOf(limit.Slice{Link: link})
	if l == nil {
		return
	}
	most := d.grantedTo(uid, l)
	for range d.nodes.Len() + enforce.MostSocketsOfUser {
		if d.grantUsed(uid, l.id, 0, 0) <= most {
			return
		}
		if err := d.releaseLatest(uid, l); err != nil {
			d.log.Warn("a reservation is more than is granted now", "user", uid, "err", err)
			return
		}
	}
}

// releaseLatest releases the latest reservation of a user, if there is one. The caller holds d.mu.
func (d *Daemon) releaseLatest(uid uint32, link *node) error {
	var latest enforce.SocketReservation
	for _, s := range d.observe.SocketReservations() {
		if s.UID == uid && s.Link == link.id && s.Cookie > latest.Cookie {
			latest = s
		}
	}
	if latest.Cookie != 0 {
		latest.SocketSlice = enforce.SocketSlice{}
		return d.kernel.Reserve(latest)
	}
	var last *node
	for _, n := range d.nodes.Sorted() {
		if d.usersOwn(n).Link == link.id && d.countsAs(n.userUID) == uid {
			last = n
		}
	}
	if last == nil {
		return nil
	}
	return d.release(last, enforce.OwnerUser)
}
