package observe

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// Audience is the set of callers that an event is for, beside root.
type Audience struct {
	everybody bool
	uids      [2]uint32 // 0 = nobody: root receives every event
	of        *Node     // a limit whose destination they have to be allowed to see; nil: the event names none
}

// Everybody is the audience of events that concern the whole machine.
func Everybody() Audience { return Audience{everybody: true} }

// UsersOnly is the audience of events that concern one or two users; 0 = none.
func UsersOnly(uids [2]uint32) Audience { return Audience{uids: uids} }

func (a Audience) has(by auth.Actor) bool {
	return (by.Root() || a.everybody || by.UID == a.uids[0] || by.UID == a.uids[1]) && (a.of == nil || a.of.DestinationIsFor(by))
}

// audience returns the readers of events about a node. The host's limit concerns everybody. A limit on a user or on a
// user's process concerns that user, also a limit on a part of their traffic only. The user that has set the limit is
// in the audience, too.
func (n *Node) audience() Audience {
	a := Audience{everybody: n.Kind == enforce.KindHost}
	switch n.Kind {
	case enforce.KindTree, enforce.KindUser:
		a.uids[0] = n.UID
	case enforce.KindDestination:
		a.uids[0], a.of = n.Users.Bound, n
	}
	if n.Users.HasOwner {
		a.uids[1] = n.Users.Owner
	}
	if n.Users.HasScope {
		a.uids[0] = n.Users.Scope
	}
	return a
}

// event returns an event about a node.
func (n *Node) event(t api.EventType, by string) api.Event {
	subject := n.Subject
	return api.Event{Type: t, Subject: &subject, Node: n.ID, Name: n.Name, By: by, Limits: n.shownLimits()}
}

// TellOf publishes an event about a node, with a message or "".
func (o *Observer) TellOf(n *Node, t api.EventType, message string) {
	e := n.event(t, "")
	e.Message = message
	o.events.tell(n.audience(), e)
}

// ByRule is the cause that events name for what rules do.
const ByRule = "rule"

// TellChange publishes the change of a node by a command or a rule: before is nil for a new node, now is nil if it was
// lifted. The change has been published, so that a reader of the event finds it in a list.
func (o *Observer) TellChange(before, now *Node, by string) {
	switch {
	case now == nil:
		o.events.tell(before.audience(), before.event(api.EventLimitLifted, by))
	case before != nil:
		to := now.audience()
		if was := before.audience(); to.uids[1] == 0 {
			to.uids[1] = was.uids[1]
		}
		o.events.tell(to, now.event(api.EventLimitChanged, by))
	default:
		e := now.event(api.EventLimitSet, by)
		if sample, err := o.sampler.of(now.ID); err == nil { // without a reading the limit holds all the same
			e.Processes, e.Sockets = sample.Nodes[now.ID].Processes, sample.Backlogs[now.ID].Sockets
		}
		o.events.tell(now.audience(), e)
	}
}
