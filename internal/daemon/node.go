package daemon

import (
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
)

// node is one subject with the limits that its owners request for it.
type node struct {
	id        uint32
	res       identity.Resolved
	requested limit.Owners                  // set by commands
	timed     [enforce.Owners]desired.Timed // set by commands for a time, and first: timed.go
	ruled     desired.Rules                 // set by rules
	// userUID is the user who owns the limit of enforce.OwnerUser.
	userUID  uint32
	userName string
	since    time.Time
	scope    *desired.Scope
	group    string // the group that the node was taken into, "" = none

	to      *toward // the destination that a command names; nil for other nodes
	holds   int     // number of such nodes under this one
	scopeID uint32  // the node that it was under, by the state file
	marker  bool    // the node existed for others only, by the state file

	reserved reserved // the current worth of its reservation
	backlog  uint64   // ns that egress may wait, of a node that follows a path; 0 = no bound
	nowhere  bool     // a link whose network namespace has gone: followNames

	applied bool // the kernel has the node
	// drift is the last answer of the kernel that differed from the requested state. The daemon sets the node again
	// only when that answer changes.
	drift      enforce.NodeSpec
	lastErr    string          // logged already
	watch      *identity.Watch // watch on the root process; nil when that has ended or cannot be watched
	countsFrom time.Time       // when the counters were 0; the zero value = before this daemon began
}

// spec returns the node as the kernel should have it.
func (n *node) spec() enforce.NodeSpec {
	spec := enforce.NodeSpec{
		ID:              n.id,
		Kind:            n.res.Kind,
		Subject:         n.res.Key,
		StartBoottimeNS: n.res.StartBoottimeNS,
		Parent:          n.ruled.Outer,
		Weight:          n.holding().Weight(),
		Guarantee:       n.promised(),
		GuaranteeDown:   n.promisedOn(enforce.Down),
		DSCP:            n.holding().DSCP(),
		Line:            n.requested[enforce.OwnerAdmin].Line.Enforced(),
		Loopback:        n.holding().Loopback(),
		MeterOff:        n.holding().MeterOff(),
		BacklogNS:       n.backlog,
		Own:             n.own(),
		Ceilings:        n.holding().Ceilings(),
	}
	n.lapses(&spec.Ceilings)
	if n.isEach() {
		spec.Ceilings, spec.Each = never(spec.Ceilings), true
	}
	// A limit as high as that on an area is never reached. Its node exists to note the peers that it meets.
	spec.Notes = n.to != nil && n.requested[enforce.OwnerAdmin].Up >= adaptation.AreaLimit
	if n.reserved.link != 0 {
		s := n.holding().Reservation()
		spec.PeriodNS, spec.Link, spec.SliceOnly = s.PeriodNS, n.reserved.link, !s.Extra
	}
	return spec
}

// Keys returns what the table of nodes finds the node by.
func (n *node) Keys() desired.Keys {
	k := desired.KeysOf(n.id, n.res, n.scope)
	if n.usersWish() {
		k.Owner = desired.User{UID: n.userUID, Known: true}
	}
	if n.ruled.Shared == "" && n.ruled.Destined == 0 && !n.ruled.Owners[enforce.OwnerAdmin].Empty() {
		k.Matched = desired.User{UID: n.res.UID, Known: true}
	}
	return k
}

// empty reports whether no owner wants anything of the node or of a node under it, neither by a command nor by a rule.
func (n *node) empty() bool { return !n.commanded() && n.ruled.Empty() && n.holds == 0 }

// ifAny returns the node, or nil if no owner wants anything of it.
func (n *node) ifAny() *node {
	if n.empty() {
		return nil
	}
	return n
}

// own reports whether only the user wants something of the node, and the administrator nothing.
func (n *node) own() bool {
	return !n.asks(enforce.OwnerAdmin) && n.ruled.Owners[enforce.OwnerAdmin].Empty()
}

// holding returns the limits in force of each owner. A limit by a command comes first, and the owner's rules fill in
// the rest.
func (n *node) holding() (w limit.Owners) {
	for owner := range w {
		w[owner] = n.requested[owner].Over(n.ruled.Owners[owner].Wish)
		if first := &n.timed[owner]; first.EndBoottimeNS != 0 {
			w[owner] = w[owner].With(first.Limit)
		}
	}
	return w
}

// restarted reports whether res is the new cgroup of the node's unit, or the new device of a link.
func (n *node) restarted(res identity.Resolved) bool {
	return n.res.Subject == res.Subject && n.res.Renewed() && !res.Pending() && n.res.Key != res.Key
}

func (n *node) setUser(uid uint32) {
	n.userUID, n.userName = uid, identity.UserName(uid)
}

// limits lists the limits that the owners have set.
func (n *node) limits() []observe.Limit {
	list := []observe.Limit{}
	for owner, w := range n.requested {
		name := api.OwnerAdmin
		if enforce.Owner(owner) == enforce.OwnerUser {
			name = n.userName
		}
		burst := w.BurstNS
		if burst == 0 {
			burst = limit.DefaultBurstNS
		}
		rule := n.ruled.Owners[owner]
		first := &n.timed[owner]
		for dir, rate := range w.Over(rule.Wish).Rates() {
			var end, then uint64
			if short := first.Limit.Rates()[dir]; short != 0 {
				end, then, rate = first.EndBoottimeNS, rate, short
			}
			if rate == 0 {
				continue
			}
			var from *api.RuleOrigin
			if w.Rates()[dir] == 0 && end == 0 {
				from = observe.ShownOrigin(rule.From[dir])
			}
			list = append(list, observe.Limit{EndBoottimeNS: end, Limit: api.Limit{
				Rule:            from,
				UntilReboot:     from == nil && end == 0 && w.UntilReboot,
				ThenBytesPerSec: then,
				Owner:           name,
				Direction:       limit.DirectionName(enforce.Direction(dir)),
				BytesPerSec:     rate,
				BurstNS:         burst,
				Enforced:        !n.res.Pending() && n.lastErr == "",
			}})
		}
	}
	return list
}

// sameSpec compares the desired state of a node with the kernel's report. The kernel may spell defaults out, may know
// the start of a process more exactly, and keeps bursts as bytes. It does not report the bound on the backlog. These
// fields are not compared.
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
		s.Weight = limit.DefaultWeight
	}
	for owner := range s.Ceilings {
		for dir := range s.Ceilings[owner] {
			s.Ceilings[owner][dir].BurstNS = 0
		}
	}
	return s
}
