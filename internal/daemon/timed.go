package daemon

import (
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// A limit for a time comes before the same owner's other limits, which hold again when it ends. The kernel changes the
// ceilings at that moment by itself (enforce.Lapse); the tick then takes the limit out of the node.

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
		t.SpanNS = req.ForNS
		t.EndIn(time.Duration(req.ForNS))
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
			n.Timed[owner].SpanNS = max(c.Lapse.BoottimeNS, identity.BootTimeNS()) - identity.BootTimeNS()
			n.Timed[owner].EndIn(time.Duration(n.Timed[owner].SpanNS))
			n.Timed[owner].EndBoottimeNS = c.Lapse.BoottimeNS
		}
	}
}

// endTimed takes the limits whose time is over out of their nodes. The caller holds d.mu.
func (d *Daemon) endTimed() {
	now := identity.BootTimeNS()
	for n := range d.nodes.All() {
		next := *n
		for owner := range n.Timed {
			if n.Timed[owner].IsOver(now) {
				next.Timed[owner] = desired.Timed{}
			}
		}
		if next.Timed == n.Timed {
			continue
		}
		if err := d.settle(n, &next, "its time"); err != nil {
			d.once(n, err)
			continue
		}
		d.log.Info("the time of a limit is over", "subject", n.res.Subject.String())
	}
}
