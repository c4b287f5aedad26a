package daemon

import (
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// dropsQuiet is the time without drops after which further drops are reported as a new event.
const dropsQuiet = 10 * time.Second

// audience returns the readers of events about a node. The host's limit concerns everybody. A limit on a user or on a
// user's process concerns that user, also a limit on a part of their traffic only. The user that has set the limit is
// in the audience, too.
func (n *node) audience() audience {
	a := audience{everybody: n.res.Kind == enforce.KindHost}
	switch n.res.Kind {
	case enforce.KindTree, enforce.KindUser:
		a.uids[0] = n.res.UID
	case enforce.KindDestination:
		a.uids[0], a.of = n.userBound(), n
	}
	if n.asks(enforce.OwnerUser) || !n.ruled.Owners[enforce.OwnerUser].empty() {
		a.uids[1] = n.userUID
	}
	if n.scope != nil {
		a.uids[0] = n.scope.UID
	}
	return a
}

// event returns an event about a node.
func (n *node) event(t api.EventType, by string) api.Event {
	subject := n.res.Subject
	return api.Event{Type: t, Subject: &subject, Node: n.id, Name: n.res.Name, By: by, Limits: n.limits()}
}

// byRule is the cause that events name for what rules do.
const byRule = "rule"

// tellSet publishes the change of a node by a command or a rule: before is nil for a new node, now is nil if it was
// lifted. The caller holds d.mu.
func (d *Daemon) tellSet(before, now *node, by string) {
	if !d.events.heard() {
		return
	}
	switch {
	case now == nil:
		d.events.tell(before.audience(), before.event(api.EventLimitLifted, by))
	case before != nil:
		to := now.audience()
		if was := before.audience(); to.uids[1] == 0 {
			to.uids[1] = was.uids[1]
		}
		d.events.tell(to, now.event(api.EventLimitChanged, by))
	default:
		e := now.event(api.EventLimitSet, by)
		if sample, err := d.sampler.of(now.id); err == nil { // without a reading the limit holds all the same
			e.Processes, e.Sockets = sample.nodes[now.id].Processes, sample.queues[now.id].sockets
		}
		d.events.tell(now.audience(), e)
	}
}

// tellMatched publishes that rules match a process.
func (d *Daemon) tellMatched(res identity.Resolved, program string, m matched) {
	if !d.events.heard() {
		return
	}
	subject := res.Subject
	e := api.Event{Type: api.EventRuleMatched, Subject: &subject, Name: res.Name, By: byRule, PID: int(res.Key), Program: program}
	for _, list := range m {
		for _, r := range list.all() {
			e.Rules = append(e.Rules, api.RuleOrigin{Name: r.Name, File: r.File, Line: r.Line})
		}
	}
	d.events.tell(audience{uids: [2]uint32{res.UID}}, e)
}

// noticed holds the observations of the last tick, for events about changes that no command makes.
type noticed struct {
	queues map[enforce.Queue]bool
	known  bool // the queues were read while an event reader was listening
	drops  map[dropKey]dropSeen
}

type dropKey struct {
	node      uint32
	direction api.Direction
}

type dropSeen struct {
	drops enforce.Drops
	last  time.Time // time of the last drops
}

// noticeFirst reads the queues for the first event reader, so that only later queues count as new.
func (d *Daemon) noticeFirst() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown || d.noticed.known {
		return
	}
	if queues, err := d.kernel.Queues(); err == nil { // otherwise the next tick reports the error
		d.noticed.queues, d.noticed.known = make(map[enforce.Queue]bool), true
		for _, q := range queues {
			d.noticed.queues[q] = true
		}
	}
}

// notice publishes the changes since the last tick. The caller holds d.mu.
func (d *Daemon) notice(now sample) {
	d.noticeDrops(now)
	if !d.events.heard() {
		d.noticed.known = false
		return
	}
	queues, err := d.kernel.Queues()
	if err != nil {
		d.sampler.complain(d.log, err)
		return
	}
	is := make(map[enforce.Queue]bool, len(queues))
	tell := func(t api.EventType, q enforce.Queue) {
		d.events.tell(everybody(), api.Event{Type: t, Direction: directionName(q.Direction), Netns: q.Netns})
	}
	for _, q := range queues {
		is[q] = true
		if d.noticed.known && !d.noticed.queues[q] {
			tell(api.EventQueueMade, q)
		}
	}
	for q := range d.noticed.queues {
		if d.noticed.known && !is[q] {
			tell(api.EventQueueGone, q)
		}
	}
	d.noticed.queues, d.noticed.known = is, true
}

func (d *Daemon) noticeDrops(now sample) {
	seen := make(map[dropKey]dropSeen, 2*len(d.nodes))
	for id, n := range d.nodes {
		stats := now.nodes[id]
		for direction, drops := range map[api.Direction]enforce.Drops{api.Up: stats.Datagrams.Dropped, api.Down: stats.Down.Dropped} {
			key := dropKey{id, direction}
			was := d.noticed.drops[key] // of a new node: none
			is := dropSeen{drops: drops, last: was.last}
			if d.noticed.drops != nil && drops.Sum() > was.drops.Sum() {
				is.last = now.at
				if was.last.IsZero() || now.at.Sub(was.last) > dropsQuiet {
					e := n.event(api.EventDropsBegan, "")
					since := dropsSince(drops, was.drops)
					e.Direction, e.Drops = direction, &since
					d.events.tell(n.audience(), e)
				}
			}
			seen[key] = is
		}
	}
	d.noticed.drops = seen
}

func dropsSince(now, then enforce.Drops) api.Drops {
	less := func(a, b uint64) uint64 {
		if a < b { // the counter began again
			return a
		}
		return a - b
	}
	return api.Drops{
		QueueFull: less(now.QueueFull, then.QueueFull), NoQueue: less(now.NoQueue, then.NoQueue), Ahead: less(now.Ahead, then.Ahead),
	}
}
