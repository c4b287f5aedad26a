package daemon

import (
	"cmp"
	"fmt"
	"math/big"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// slice is a reservation of a link's time, as one owner requests it. The zero value is no reservation.
type slice struct {
	Link     string `json:"link"`
	PeriodNS uint64 `json:"period_ns"`
	SliceNS  uint64 `json:"slice_ns"`
	Extra    bool   `json:"extra,omitempty"`
	UntilNS  int64  `json:"until_unix_ns,omitempty"` // 0 = until it is released; since version 7 of the state
}

func sliceOf(r api.Reservation) slice {
	if r.SliceNS == 0 {
		return slice{}
	}
	s := slice{Link: r.Link, PeriodNS: r.PeriodNS, SliceNS: r.SliceNS, Extra: r.Extra}
	if r.ForNS != 0 {
		s.UntilNS = time.Now().Add(time.Duration(r.ForNS)).UnixNano()
	}
	return s
}

func (s slice) api() *api.Reservation {
	if s == (slice{}) {
		return nil
	}
	r := api.Reservation{Link: s.Link, PeriodNS: s.PeriodNS, SliceNS: s.SliceNS, Extra: s.Extra}
	if s.UntilNS != 0 {
		r.ForNS = uint64(max(s.UntilNS-time.Now().UnixNano(), 1))
	}
	return &r
}

func (s slice) over(at time.Time) bool { return s.UntilNS != 0 && at.UnixNano() >= s.UntilNS }

// reserved is the worth of a reservation while its link has a limit: the reserved part of that limit.
type reserved struct {
	link        uint32 // node of the link
	bytesPerSec uint64
}

// reservation returns the administrator's reservation if they promise anything. Otherwise it returns the user's, which
// stays within the grant.
func (w wishes) reservation() slice {
	if w.guarantee() != 0 {
		return slice{}
	}
	return cmp.Or(w[enforce.OwnerAdmin].Reserve, w[enforce.OwnerUser].Reserve)
}

// promised returns the guaranteed egress of the node, in bytes/s.
func (n *node) promised() uint64 {
	if n.holding().reservation() != (slice{}) {
		return n.reserved.bytesPerSec
	}
	return n.holding().guarantee()
}

// worth returns the worth of a reservation on a link with a limit on sending; without that limit it is nothing. The
// caller holds d.mu.
func (d *Daemon) worth(s slice) (r reserved) {
	link := d.linkOf(s)
	if link == nil || link.sendingLimit() == 0 {
		return r
	}
	return reserved{link: link.id, bytesPerSec: link.slice(s.SliceNS, s.PeriodNS)}
}

// slice returns the worth of sliceNS in each periodNS of a link's limit on sending, in bytes/s.
func (n *node) slice(sliceNS, periodNS uint64) uint64 {
	return max(partOf(n.sendingLimit(), sliceNS, periodNS), 1)
}

// partOf is rate * part / whole.
func partOf(rate, part, whole uint64) uint64 {
	v := new(big.Int).SetUint64(rate)
	v.Mul(v, new(big.Int).SetUint64(part))
	return v.Div(v, new(big.Int).SetUint64(whole)).Uint64()
}

// linkOf returns the node of a reservation's link, nil if the link has none. The caller holds d.mu.
func (d *Daemon) linkOf(s slice) *node {
	if s == (slice{}) {
		return nil
	}
	for _, n := range d.nodes {
		if n.res.Kind == enforce.KindLink && n.res.Subject.ID == s.Link {
			return n
		}
	}
	return nil
}

// dscpOf returns a DSCP mark for clients. The argument is the mark plus 1, and 0 is no mark.
func dscpOf(and1 uint8) *int {
	if and1 == 0 {
		return nil
	}
	dscp := int(and1) - 1
	return &dscp
}

// checkReserve refuses a reservation on a link without a limit, and one beyond the grant. The caller holds d.mu.
func (d *Daemon) checkReserve(by auth.Actor, n *node) error {
	s := n.wishes[by.Owner()].Reserve
	if s == (slice{}) {
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
	for _, n := range d.sorted() {
		s := n.holding().reservation()
		if s == (slice{}) {
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
	for _, n := range d.nodes {
		for owner := range n.wishes {
			s := n.wishes[owner].Reserve
			if !s.over(now) {
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
	next.wishes[owner] = next.wishes[owner].merge(api.Wish{Reserve: &api.Reservation{}})
	next.reserved = d.worth(next.holding().reservation())
	before := *n
	if next.empty() {
		if err := d.end(n); err != nil {
			return err
		}
	} else if _, err := d.commit(n, &next); err != nil {
		return err
	}
	d.tellSet(&before, next.ifAny(), "the daemon")
	return nil
}
