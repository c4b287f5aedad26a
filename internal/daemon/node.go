package daemon

import (
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// node is one subject with what its owners want of it.
type node struct {
	id     uint32
	res    identity.Resolved
	wishes wishes // set by commands
	ruled  ruled  // set by rules
	// userUID is whose the wish of enforce.OwnerUser is.
	userUID  uint32
	userName string
	since    time.Time
	scope    *scope
	group    string // that it was taken into, "" = none

	to      *toward // for which part of the traffic, by a command; nil for other nodes
	holds   int     // how many such are under this one
	scopeID uint32  // under which it was, as the state file says
	marker  bool    // it was there for others only, as the file says

	reserved reserved // what its reservation is worth now
	backlog  uint64   // ns that what it sends may wait, of one that follows a path; 0 = not bounded
	nowhere  bool     // a link whose network namespace has gone: followNames

	applied bool // the kernel has the node
	// drift is what the kernel said last instead of what it had been told; it
	// is told again only when that changes.
	drift   enforce.NodeSpec
	lastErr string    // logged already
	watch   *pidWatch // of the root process; nil when it has ended or cannot be watched
	history history
}

// history is the readings of the last ticks, newest first.
type history [2]point

// point is one reading of a node's counters, or of others.
type point struct {
	at    time.Time
	bytes uint64 // that were sent
	down  uint64
	total uint64 // charged to a limit on both directions together
}

// spec is the node as the kernel should have it.
func (n *node) spec() enforce.NodeSpec {
	spec := enforce.NodeSpec{
		ID:              n.id,
		Kind:            n.res.Kind,
		Subject:         n.res.Key,
		StartBoottimeNS: n.res.StartBoottimeNS,
		Parent:          n.ruled.Outer,
		Weight:          n.holding().weight(),
		Guarantee:       n.promised(),
		GuaranteeDown:   n.promisedOn(enforce.Down),
		DSCP:            n.holding().dscp(),
		Line:            n.wishes[enforce.OwnerAdmin].Line.enforced(),
		Loopback:        n.holding().loopback(),
		MeterOff:        n.holding().meterOff(),
		BacklogNS:       n.backlog,
		Own:             n.own(),
		Ceilings:        n.holding().ceilings(),
	}
	if n.isEach() {
		spec.Ceilings, spec.Each = never(spec.Ceilings), true
	}
	// A limit that is never reached is there to tell whom it meets.
	spec.Notes = n.to != nil && n.wishes[enforce.OwnerAdmin].Up >= areaLimit
	if n.reserved.link != 0 {
		s := n.holding().reservation()
		spec.PeriodNS, spec.Link, spec.SliceOnly = s.PeriodNS, n.reserved.link, !s.Extra
	}
	return spec
}

// empty reports whether nobody wants anything of the node, neither by a command nor
// by a rule, nor of what is under it.
func (n *node) empty() bool { return n.wishes.empty() && n.ruled.empty() && n.holds == 0 }

// ifAny is the node, nil if nobody wants anything of it.
func (n *node) ifAny() *node {
	if n.empty() {
		return nil
	}
	return n
}

// own reports whether only the user wants something of the node, not the administrator.
func (n *node) own() bool {
	return n.wishes[enforce.OwnerAdmin].empty() && n.ruled.Owners[enforce.OwnerAdmin].empty()
}

// holding is what holds for each owner: what they set by a command, and by their
// rules what they did not.
func (n *node) holding() (w wishes) {
	for owner := range w {
		w[owner] = n.wishes[owner].over(n.ruled.Owners[owner].Wish)
	}
	return w
}

// restarted reports whether res is what the node's unit runs in by now, or its device.
func (n *node) restarted(res identity.Resolved) bool {
	return n.res.Subject == res.Subject && n.res.Renewed() && !res.Pending() && n.res.Key != res.Key
}

func (n *node) setUser(uid uint32) {
	n.userUID, n.userName = uid, identity.UserName(uid)
}

// pid is the process that people know the node by, 0 if there is none.
func (n *node) pid() int {
	switch {
	case n.scope != nil:
		return n.scope.PID
	case n.res.Kind == enforce.KindTree:
		return int(n.res.Key)
	}
	return 0
}

func pointOf(at time.Time, s enforce.NodeStats) point {
	return point{at: at, bytes: s.Bytes, down: s.Down.Bytes, total: s.TotalBytes}
}

// record keeps the counter's value of this tick.
func (h *history) record(p point) { h[1], h[0] = h[0], p }

// flowRates are bytes/s: sent, received, and charged to a limit on both together.
type flowRates struct{ up, down, total uint64 }

// rates returns how fast the counters have grown since the newest reading that is old
// enough to divide by.
func (h *history) rates(now point, least time.Duration) flowRates {
	from := h[0]
	if now.at.Sub(from.at) < least && !h[1].at.IsZero() {
		from = h[1]
	}
	span := now.at.Sub(from.at)
	if from.at.IsZero() || span < least/10 || span <= 0 {
		return flowRates{}
	}
	since := func(from, now uint64) uint64 {
		if now < from { // the node was made anew
			from = 0
		}
		return uint64(float64(now-from) / span.Seconds())
	}
	return flowRates{up: since(from.bytes, now.bytes), down: since(from.down, now.down), total: since(from.total, now.total)}
}

// limits lists what the owners have set.
func (n *node) limits() []api.Limit {
	list := []api.Limit{}
	for owner, w := range n.wishes {
		name := "admin"
		if enforce.Owner(owner) == enforce.OwnerUser {
			name = n.userName
		}
		burst := w.BurstNS
		if burst == 0 {
			burst = defaultBurst
		}
		rule := n.ruled.Owners[owner]
		for dir, rate := range w.over(rule.Wish).rates() {
			if rate == 0 {
				continue
			}
			var from *api.RuleOrigin
			if w.rates()[dir] == 0 {
				from = rule.From[dir].api()
			}
			list = append(list, api.Limit{
				Rule:        from,
				UntilReboot: from == nil && w.UntilReboot,
				Owner:       name,
				Direction:   directionName(enforce.Direction(dir)),
				BytesPerSec: rate,
				BurstNS:     burst,
				Enforced:    !n.res.Pending() && n.lastErr == "",
			})
		}
	}
	return list
}

func directionName(d enforce.Direction) api.Direction {
	switch d {
	case enforce.Up:
		return api.Up
	case enforce.Down:
		return api.Down
	}
	return api.Total
}

// sameSpec compares what is wanted with what the kernel reports. The kernel may
// spell defaults out, may know a process's start more exactly, keeps bursts
// as bytes, and does not tell what may wait: they are not compared.
func sameSpec(a, b enforce.NodeSpec) bool {
	return sameIdentity(a, b) && normal(a) == normal(b)
}

func sameIdentity(a, b enforce.NodeSpec) bool {
	return a.Kind == b.Kind && a.Subject == b.Subject &&
		(a.Kind != enforce.KindTree || identity.SameStart(a.StartBoottimeNS, b.StartBoottimeNS))
}

func normal(s enforce.NodeSpec) enforce.NodeSpec {
	s.StartBoottimeNS, s.Parent, s.BacklogNS = 0, 0, 0
	if s.Weight == 0 {
		s.Weight = defaultWeight
	}
	for owner := range s.Ceilings {
		for dir := range s.Ceilings[owner] {
			s.Ceilings[owner][dir].BurstNS = 0
		}
	}
	return s
}
