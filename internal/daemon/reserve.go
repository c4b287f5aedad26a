package daemon

import (
	"fmt"
	"math/big"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// slice is a reservation of a link's time, as somebody wants it. The zero value is none.
type slice struct {
	Link     string `json:"link"`
	PeriodNS uint64 `json:"period_ns"`
	SliceNS  uint64 `json:"slice_ns"`
	Extra    bool   `json:"extra,omitempty"`
}

func sliceOf(r api.Reservation) slice {
	if r.SliceNS == 0 {
		return slice{}
	}
	return slice(r)
}

func (s slice) api() *api.Reservation {
	if s == (slice{}) {
		return nil
	}
	r := api.Reservation(s)
	return &r
}

// reserved is what a reservation is worth while its link has a limit: so much of that.
type reserved struct {
	link        uint32 // its node
	bytesPerSec uint64
}

// reservation is the administrator's, as guarantees are.
func (w wishes) reservation() slice { return w[enforce.OwnerAdmin].Reserve }

// promised is what the node may send at least, in bytes/s.
func (n *node) promised() uint64 {
	if n.holding().reservation() != (slice{}) {
		return n.reserved.bytesPerSec
	}
	return n.holding().guarantee()
}

// worth is what a reservation is of a link with a limit on sending; none without. The caller
// holds d.mu.
func (d *Daemon) worth(s slice) (r reserved) {
	link := d.linkOf(s)
	if link == nil || link.sendingLimit() == 0 {
		return r
	}
	v := new(big.Int).SetUint64(link.sendingLimit())
	v.Mul(v, new(big.Int).SetUint64(s.SliceNS))
	v.Div(v, new(big.Int).SetUint64(s.PeriodNS))
	return reserved{link: link.id, bytesPerSec: max(v.Uint64(), 1)}
}

// linkOf is the node of a reservation's link, nil if it has none. The caller holds d.mu.
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

// hasLink reports whether there is any. The caller holds d.mu.
func (d *Daemon) hasLink() bool {
	for _, n := range d.nodes {
		if n.res.Kind == enforce.KindLink {
			return true
		}
	}
	return false
}

// dscpOf is a mark as clients see it, of what is one more.
func dscpOf(and1 uint8) *int {
	if and1 == 0 {
		return nil
	}
	dscp := int(and1) - 1
	return &dscp
}

// checkReserve refuses a reservation of what has no limit. The caller holds d.mu.
func (d *Daemon) checkReserve(n *node) error {
	s := n.holding().reservation()
	if s == (slice{}) || n.reserved.link != 0 {
		return nil
	}
	return &api.Error{
		Code:    api.CodeConflict,
		Message: fmt.Sprintf("what %s carries is not known: no limit on sending stands on it of which a part could be reserved", s.Link),
		Hint:    "netnice link " + s.Link + " --up RATE",
	}
}

// followReservations renews what reservations are worth after a link has changed. The caller
// holds d.mu.
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
}
