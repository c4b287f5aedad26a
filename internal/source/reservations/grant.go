package reservations

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/units"
)

// The administrator grants users a part of a link that they may reserve for their own processes and connections. A
// grant is no promise: the grants of several users together may be more than the link has.

// grantedTo returns how much of a link a user may reserve in all, in bytes/s.
func (s *Source) grantedTo(uid uint32, link Link) uint64 {
	for n := range s.host.Nodes {
		if n.IsUser && s.host.CountsAs(n.Key) == uid && n.Grant.Link == link.Subject.ID {
			return limit.PartOf(link.BytesPerSec, uint64(n.Grant.PPM), limit.WholePPM)
		}
	}
	return 0
}

// usersOwn returns the reservation that a user has made for the node, and its link.
func (s *Source) usersOwn(n Node) plan.Worth { return s.Worth(n.Requested[enforce.OwnerUser]) }

// reservedBy returns how much of a link a user has reserved, without the reservations of some nodes and of one socket.
func (s *Source) reservedBy(uid uint32, link Link, but func(node uint32) bool, butCookie uint64) (sum uint64) {
	for n := range s.host.Nodes {
		if own := s.usersOwn(n); own.Link == link.ID && s.host.CountsAs(n.User) == uid && !but(n.ID) {
			sum += own.BytesPerSec
		}
	}
	for _, of := range s.host.Sockets() {
		if of.Cookie != butCookie && of.UID == uid && of.Link == link.ID {
			sum += of.BytesPerSec
		}
	}
	return sum
}

// grantUsed is reservedBy without one node and one socket. Processes that have ended use nothing of the grant: see
// Host.Ended.
func (s *Source) grantUsed(uid uint32, link Link, butNode uint32, butCookie uint64) uint64 {
	ended := s.host.Ended()
	return s.reservedBy(uid, link, func(node uint32) bool { return node == butNode || ended[node] }, butCookie)
}

// admitGranted refuses a user's reservation for a node that exceeds the grant.
func (s *Source) admitGranted(by auth.Actor, n Node) error {
	own := s.usersOwn(n)
	if by.Root() || own.Link == 0 {
		return nil
	}
	uid, link := s.host.CountsAs(by.UID), s.host.LinkOf(own.Link)
	most := s.grantedTo(uid, link)
	used := s.grantUsed(uid, link, n.ID, 0)
	if own.BytesPerSec <= most-min(most, used) {
		return nil
	}
	if most == 0 {
		w := api.Wish{Reserve: n.Requested[enforce.OwnerUser].API(identity.BootTimeNS())}
		return auth.Check(by, auth.Guarantee, auth.Target{Subject: n.Subject, Wish: w})
	}
	return auth.Denied(fmt.Sprintf("a reservation of %s is more than you were granted of %s: %s, of which %s are reserved already",
		units.RateText(own.BytesPerSec), link.Subject, units.RateText(most), units.RateText(used)),
		"ask for what is left, or the administrator for more: sudo netnice reserve --user NAME --link "+link.Subject.ID+" --grant PERCENT")
}

// FollowGrant releases a user's reservations on a link that exceed the present grant: first those of processes that have
// ended, then the latest.
func (s *Source) FollowGrant(uid uint32, name string) {
	uid = s.host.CountsAs(uid)
	link := s.host.Link(name)
	if link.ID == 0 {
		return
	}
	most, none := s.grantedTo(uid, link), func(uint32) bool { return false }
	for range auth.MaxNodes + enforce.MostSocketsOfUser {
		if s.reservedBy(uid, link, none, 0) <= most {
			return
		}
		if err := s.releaseOne(uid, link); err != nil {
			s.log.Warn("a reservation is more than is granted now", "user", uid, "err", err)
			return
		}
	}
}

// releaseOne releases a reservation of a user, if there is one. A process that has ended comes first, then the latest
// socket, then the latest node.
func (s *Source) releaseOne(uid uint32, link Link) error {
	node, isEnded := s.toRelease(uid, link)
	var latest enforce.SocketReservation
	for _, of := range s.host.Sockets() {
		if of.UID == uid && of.Link == link.ID && of.Cookie > latest.Cookie {
			latest = of
		}
	}
	switch {
	case latest.Cookie != 0 && !isEnded:
		latest.SocketSlice = enforce.SocketSlice{}
		return s.kernel.Reserve(latest)
	case node != 0:
		return s.host.Release(node, enforce.OwnerUser)
	}
	return nil
}

// toRelease returns the latest of a user's nodes with a reservation, 0 = none. One of a process that has ended is taken
// first.
func (s *Source) toRelease(uid uint32, link Link) (node uint32, isEnded bool) {
	ended := s.host.Ended()
	for n := range s.host.Nodes {
		if s.usersOwn(n).Link == link.ID && s.host.CountsAs(n.User) == uid && (ended[n.ID] || !isEnded) {
			node, isEnded = n.ID, ended[n.ID]
		}
	}
	return node, isEnded
}
