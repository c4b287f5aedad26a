package daemon

import (
	"net/netip"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/source/prefixlists"
)

// node is one subject with the limits that its owners request for it.
type node struct {
	id  uint32
	res identity.Resolved
	plan.Wanted
	// userUID is the user who owns the limit of enforce.OwnerUser.
	userUID  uint32
	userName string
	since    time.Time
	scope    *desired.Scope
	group    string // the group that the node was taken into, "" = none

	to      *part  // the part of the traffic that a command names; nil for other nodes
	holds   int    // number of such nodes under this one
	scopeID uint32 // the node that it was under, by the state file
	marker  bool   // the node existed for others only, by the state file

	nowhere bool // a link whose network namespace has gone: followNames
	applied bool // the kernel has the node
	// drift is the last answer of the kernel that differed from the requested state. The daemon sets the node again
	// only when that answer changes.
	drift      enforce.NodeSpec
	lastErr    string          // logged already
	watch      *identity.Watch // watch on the root process; nil when that has ended or cannot be watched
	countsFrom time.Time       // when the counters were 0; the zero value = before this daemon began
}

// part is the part of the traffic that a command's node limits. The node belongs to one owner; another owner's limit on
// the same part is another node.
type part struct {
	selector destination.Selector
	names    map[string][]netip.Addr // addresses of the names, as the state file has them
	scope    *node                   // the node that it is under; nil = all traffic that the owner may limit
	leaving  bool
	met      bool // not named by an owner, but followed since a program sent there (adaptation/area.go)

	each uint32 // id of the limit for each address that it is a part of, 0 = it was set by itself
}

// planned is what the plan needs to know of the node's subject.
func (n *node) planned() plan.Subject {
	return plan.Subject{
		ID: n.id, Kind: n.res.Kind, Key: n.res.Key, StartBoottimeNS: n.res.StartBoottimeNS,
		IsPart: n.to != nil, IsEach: n.isEach(),
	}
}

// spec returns the node as the kernel should have it while nothing is set for the whole machine.
func (n *node) spec() enforce.NodeSpec { return plan.Spec(n.planned(), &n.Wanted, plan.Machine{}) }

// owner returns the owner of a node that has only one owner.
func (n *node) owner() enforce.Owner {
	if n.IsOnlyUsers() {
		return enforce.OwnerUser
	}
	return enforce.OwnerAdmin
}

// ruleSet returns the number of the rule set in which the kernel side looks for the node.
func (n *node) ruleSet() uint32 {
	if n.IsOnlyUsers() {
		return n.userUID
	}
	return enforce.BookAdmin
}

// listKey identifies the list of prefixes in the file of a node's destination; without a file it identifies none.
func (n *node) listKey() prefixlists.Key {
	return prefixlists.Key{RuleSet: n.ruleSet(), Path: n.to.selector.List}
}

// Keys returns what the table of nodes finds the node by.
func (n *node) Keys() desired.Keys {
	k := desired.KeysOf(n.id, n.res, n.scope)
	if n.usersWish() {
		k.Owner = desired.User{UID: n.userUID, Known: true}
	}
	if n.Ruled.Shared == "" && n.Ruled.Destined == 0 && !n.Ruled.Owners[enforce.OwnerAdmin].Empty() {
		k.Matched = desired.User{UID: n.res.UID, Known: true}
	}
	return k
}

// empty reports whether no owner wants anything of the node or of a node under it, neither by a command nor by a rule.
func (n *node) empty() bool { return !n.IsCommanded() && n.Ruled.Empty() && n.holds == 0 }

// ifAny returns the node, or nil if no owner wants anything of it.
func (n *node) ifAny() *node {
	if n.empty() {
		return nil
	}
	return n
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
	for owner, w := range n.Requested {
		name := api.OwnerAdmin
		if enforce.Owner(owner) == enforce.OwnerUser {
			name = n.userName
		}
		burst := w.BurstNS
		if burst == 0 {
			burst = limit.DefaultBurstNS
		}
		rule := n.Ruled.Owners[owner]
		first := &n.Timed[owner]
		for dir, rate := range w.Over(rule.Wish).Rates() {
			var end, then uint64
			if short := first.Limit.Rates()[dir]; short != 0 {
				end, then, rate = first.BoottimeNS, rate, short
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
