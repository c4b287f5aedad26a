package observe

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/rules"
)

// Nodes lists all nodes. Everybody sees all nodes, but not the destinations of other users' limits.
func (o *Observer) Nodes(by auth.Actor) (api.NodeList, error) {
	now, err := o.sampler.full()
	if err != nil {
		return api.NodeList{}, err
	}
	shares := o.cpuShares()
	s := o.Snapshot()
	list := o.list(s, s.Shown(), now, viewer{by: by})
	list.Powers = shares
	return list, nil
}

// NodesFor lists the nodes that hold for a subject, innermost first. An error with a remedy is an *api.Error.
func (o *Observer) NodesFor(ctx context.Context, by auth.Actor, subject api.Subject) (api.NodeList, error) {
	switch subject.Kind {
	case api.KindRule:
		return o.nodesOfRule(by, subject)
	case api.KindTo:
		return o.nodesTo(by, subject)
	}
	res, resErr := o.resolver.Resolve(ctx, subject)
	if resErr != nil && !identity.IsNotFound(resErr) {
		return api.NodeList{}, resErr
	}
	now, err := o.sampler.full()
	if err != nil {
		return api.NodeList{}, err
	}
	own := resErr == nil && res.Kind == enforce.KindTree && res.UID == by.UID
	var named *api.Subject
	if resErr != nil {
		canonical := o.resolver.Canonical(subject)
		named = &canonical
	}
	s := o.Snapshot()
	var holding []*Node
	if n := s.find(res, named); n != nil {
		holding = append(holding, n)
		res = n.Resolved
	} else if resErr != nil {
		return api.NodeList{}, resErr
	}
	holding = slices.DeleteFunc(o.Around(s, holding, res, now), func(n *Node) bool { return n.IsMarker })
	if len(holding) == 0 {
		return api.NodeList{}, &api.Error{
			Code:    api.CodeNoLimit,
			Message: fmt.Sprintf("no limit holds for %s", subject), Hint: "netnice ls",
		}
	}
	seen := viewer{by: by}
	if own {
		seen.within = holding
	}
	return o.list(s, holding, now, seen), nil
}

// nodesOfRule lists the nodes that have a limit by a rule, by its name.
func (o *Observer) nodesOfRule(by auth.Actor, subject api.Subject) (api.NodeList, error) {
	now, err := o.sampler.full()
	if err != nil {
		return api.NodeList{}, err
	}
	s := o.Snapshot()
	holding := slices.DeleteFunc(s.All(), func(n *Node) bool {
		for _, list := range n.Rules.Limiting {
			if slices.ContainsFunc(list, func(from rules.Origin) bool { return from.Name == subject.ID }) {
				return false
			}
		}
		return true
	})
	if len(holding) == 0 {
		return api.NodeList{}, &api.Error{
			Code: api.CodeNoLimit, Message: "the rule " + subject.ID + " holds for no process now", Hint: "netnice rules list",
		}
	}
	return o.list(s, holding, now, viewer{by: by}), nil
}

// nodesTo lists the nodes for a destination: those under the subject in it, or under any subject if it has none. It
// omits nodes whose destination the actor may not see, so that a guess of a destination is not confirmed.
func (o *Observer) nodesTo(by auth.Actor, subject api.Subject) (api.NodeList, error) {
	selector, under, err := destination.Parse(subject.ID)
	if err != nil {
		return api.NodeList{}, destination.Refused("%v", err)
	}
	now, err := o.sampler.full()
	if err != nil {
		return api.NodeList{}, err
	}
	s, text := o.Snapshot(), selector.String()
	var holding []*Node
	for _, n := range s.All() {
		if n.To == nil || n.To.Selector.String() != text || !n.DestinationIsFor(by) {
			continue
		}
		_, its, _ := destination.Parse(n.Subject.ID)
		if under == (api.Subject{}) || o.resolver.Canonical(under) == its {
			holding = append(holding, n)
		}
	}
	if len(holding) == 0 {
		return api.NodeList{}, &api.Error{Code: api.CodeNoLimit, Message: fmt.Sprintf("no limit stands on %s", selector.Subject(under)), Hint: "netnice ls"}
	}
	return o.list(s, holding, now, viewer{by: by}), nil
}

// Show returns one node for an actor as it is, or as it would be among the nodes of a snapshot.
func (o *Observer) Show(s *Snapshot, by auth.Actor, n *Node, now Sample) *api.Node {
	return &o.list(s, []*Node{n}, now, viewer{by: by}).Nodes[0]
}

func (o *Observer) list(s *Snapshot, nodes []*Node, now Sample, by viewer) api.NodeList {
	answer := api.NodeList{Version: api.Version, Time: now.At, Nodes: make([]api.Node, 0, len(nodes)), Unknown: o.unknown(now)}
	enclosing := s.enclosures(o.resolver)
	promised := sync.OnceValue(func() Guarantees { return o.Guarantees(s, enforce.Up) })
	census := sync.OnceValue(o.census.count)
	for _, n := range nodes {
		shown := o.render(s, n, now)
		shown.PromisedBytesPerSec, shown.PromisableBytesPerSec = n.promises(promised)
		if by.sees(n) {
			shown.Names, shown.ListedPrefixes = s.shownNames(n), s.listed(n)
		} else {
			shown.Subject, shown.Name = n.hidden()
		}
		if shown.Parent == 0 {
			shown.Parent = enclosing.of(n)
			if under := s.under(n); under != nil && !under.IsMarker {
				shown.Parent = under.ID
			}
		}
		shown.Up.Uncounted = shown.Up.Bytes == 0 && !s.countsSent(n, enclosing, now)
		switch n.Kind {
		case enforce.KindUser:
			shown.Processes = census()[n.UID]
		case enforce.KindHost:
			for _, count := range census() {
				shown.Processes += count
			}
		case enforce.KindCgroup:
			if !n.Pending() {
				shown.Processes = identity.CgroupProcesses(n.Dir)
			}
		}
		answer.Nodes = append(answer.Nodes, shown)
	}
	return answer
}

// under returns the node that a command's limit on a destination is under, nil if there is none.
func (s *Snapshot) under(n *Node) *Node {
	if n.To == nil || n.To.Under == 0 {
		return nil
	}
	return s.Node(n.To.Under)
}

// name returns the name of a node. The program changes with exec. A limit by a command on some addresses has the name of
// the node that it is under.
func (o *Observer) name(s *Snapshot, n *Node) string {
	if under := s.under(n); under != nil {
		n = under
	}
	if n.Process.PID != 0 {
		if name, ok := o.resolver.LastName(n.Process.PID, n.Process.StartNS); ok {
			return name
		}
	}
	return n.Name
}

// reservation returns the node's reservation in the form of the API, nil if it has none.
func (n *Node) reservation() *api.Reservation {
	if s := n.Holding.Reservation(); s != (limit.Slice{}) {
		return s.API(identity.BootTimeNS())
	}
	return nil
}

// render returns a node in the form of the API. It counts processes only as far as the kernel does, and leaves out the
// promises on its limit.
func (o *Observer) render(s *Snapshot, n *Node, now Sample) api.Node {
	stats, backlog := now.Nodes[n.ID], now.Backlogs[n.ID]
	rates := o.readings.Load().of(n).rates(pointOf(now.At, stats), o.tick/2)
	return api.Node{
		ID: n.ID, Subject: n.Subject, Parent: stats.Parent, Name: o.name(s, n), UID: n.UID, Private: !n.DestinationIsFor(anybody()),
		Limits: n.shownLimits(), Weight: n.Holding.Weight(), MinBytesPerSec: n.Guaranteed[enforce.Up], MinDownBytesPerSec: n.Guaranteed[enforce.Down],
		Reserved: n.reservation(), DSCP: dscpOf(n.Holding.DSCP()), Loopback: n.Holding.Loopback(), MeterOff: s.meterOff(n),
		Group:   n.Group,
		Line:    n.Line.API(),
		Granted: n.Grant.API(),
		Members: api.Members{Processes: stats.Processes, Sockets: backlog.Sockets, StatelessSockets: now.Stateless[n.ID]},
		PID:     n.Process.PID, Since: n.Since,
		Total: totalUsage(n, stats, rates),
		Up: api.Usage{
			Bytes:           stats.Bytes,
			RateBytesPerSec: rates.up,
			WaitingSockets:  backlog.Waiting,
			WaitingBytes:    backlog.Bytes,
			WaitNS:          backlog.WaitNS,
			Held:            stats.Held,
			QueuedBytes:     stats.Datagrams.QueuedBytes,
			QueueNS:         stats.Datagrams.DelayNS,
			Dropped:         stats.Datagrams.Dropped.Sum(),
			DroppedFor:      drops(stats.Datagrams.Dropped),
		},
		Down: api.Usage{
			Bytes:           stats.Down.Bytes,
			RateBytesPerSec: rates.down,
			WaitingBytes:    stats.Down.QueuedBytes,
			WaitNS:          stats.Down.DelayNS,
			Dropped:         stats.Down.Dropped.Sum(),
			DroppedFor:      drops(stats.Down.Dropped),
			Uncounted:       !s.countsReceived(n),
		},
	}
}

// dscpOf returns a DSCP mark for clients. The argument is the mark plus 1, and 0 is no mark.
func dscpOf(and1 uint8) *int {
	if and1 == 0 {
		return nil
	}
	dscp := int(and1) - 1
	return &dscp
}

// totalUsage returns the charge of a limit on both directions together, nil if the node has none.
func totalUsage(n *Node, stats enforce.NodeStats, rates flowRates) *api.TotalUsage {
	if !n.Holding.HasTotal() {
		return nil
	}
	return &api.TotalUsage{Bytes: stats.TotalBytes, RateBytesPerSec: rates.total}
}

// drops returns drops in the form of the API.
func drops(d enforce.Drops) api.Drops {
	return api.Drops{QueueFull: d.QueueFull, NoQueue: d.NoQueue, Ahead: d.Ahead}
}
