package daemon

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// A limit for a time comes before the same owner's other limits, which hold again when it ends. The kernel changes the
// ceilings at that moment by itself (enforce.Lapse); the tick then takes the limit out of the node. A reservation for a
// time replaces the owner's other one, and ends at the tick: the kernel keeps it until then.

// place returns the limit of an owner that a request changes: the one for a time, or the other one.
func (n *node) place(owner enforce.Owner, req api.SetRequest) *limit.Limit {
	if req.ForNS != 0 {
		return &n.Timed[owner].Limit
	}
	return &n.Requested[owner]
}

// timeFrom completes a request that was merged into its place. A limit for a time ends that long from now. Another one
// ends what it replaces of the limit for a time.
func (n *node) timeFrom(owner enforce.Owner, req api.SetRequest) {
	t := &n.Timed[owner]
	if req.ForNS != 0 {
		t.End = desired.Now().In(req.ForNS)
		return
	}
	if t.Limit = t.Limit.Without(req.Wish); t.Limit.Empty() {
		*t = desired.Timed{}
	}
}

// takeLapses completes a node whose limits were read from the kernel side: a ceiling with a lapse is one for a time, and
// what it becomes is the owner's other limit.
func (n *node) takeLapses(spec enforce.NodeSpec) {
	for owner, ceilings := range spec.Ceilings {
		for dir, c := range ceilings {
			if c.Lapse.BoottimeNS == 0 {
				continue
			}
			for _, r := range limit.Rates {
				if r.Direction == enforce.Direction(dir) && !r.Least {
					*r.Of(&n.Timed[owner].Limit), *r.Of(&n.Requested[owner]) = c.BytesPerSec, c.Lapse.BytesPerSec
				}
			}
			now := desired.Now()
			n.Timed[owner].End = now.In(max(c.Lapse.BoottimeNS, now.BoottimeNS+1) - now.BoottimeNS)
			n.Timed[owner].BoottimeNS = c.Lapse.BoottimeNS
		}
	}
}

// endTimed takes the limits and the reservations whose time is over out of their nodes. The caller holds d.mu.
func (d *Daemon) endTimed() {
	now := identity.BootTimeNS()
	for n := range d.nodes.All() {
		if !n.HasEnded(now) {
			continue
		}
		before, next := *n, *n
		next.End(now)
		next.Reserved = d.reservations.Worth(next.Holding().Reservation())
		if err := d.settle(n, &next, "its time"); err != nil {
			d.once(n, err)
			continue
		}
		if before.Timed != next.Timed {
			d.log.Info("the time of a limit is over", "subject", n.res.Subject.String())
		}
		for owner := range before.Requested {
			if had := before.Requested[owner].Reserve; had != next.Requested[owner].Reserve {
				d.log.Info("the time of a reservation is over", "subject", n.res.Subject.String(), "link", had.Link)
			}
		}
	}
}
