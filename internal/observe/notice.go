package observe

import (
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// dropsQuiet is the time without drops after which further drops are reported as a new event.
const dropsQuiet = 10 * time.Second

// noticed holds the observations of the last tick, for events about changes that no command makes.
type noticed struct {
	mu     sync.Mutex
	queues map[enforce.Queue]bool
	known  bool                 // the queues were read while an event reader was listening
	drops  map[dropKey]dropSeen // nil = they were never read
}

type dropKey struct {
	node      uint32
	direction api.Direction
}

type dropSeen struct {
	drops enforce.Drops
	last  time.Time // time of the last drops
}

// NoticeDrops says that no node existed before: all drops from now on are new.
func (o *Observer) NoticeDrops() {
	o.noticed.mu.Lock()
	defer o.noticed.mu.Unlock()
	o.noticed.drops = make(map[dropKey]dropSeen)
}

// noticeFirst reads the queues for the first event reader, so that only later queues count as new.
func (o *Observer) noticeFirst() {
	o.noticed.mu.Lock()
	defer o.noticed.mu.Unlock()
	if o.noticed.known {
		return
	}
	if queues, err := o.kernel.Queues(); err == nil { // otherwise the next tick reports the error
		o.noticed.queues, o.noticed.known = make(map[enforce.Queue]bool), true
		for _, q := range queues {
			o.noticed.queues[q] = true
		}
	}
}

// notice publishes the changes since the last tick.
func (o *Observer) notice(now Sample) error {
	o.noticed.mu.Lock()
	defer o.noticed.mu.Unlock()
	o.noticeDrops(now)
	if !o.events.heard() {
		o.noticed.known = false
		return nil
	}
	queues, err := o.kernel.Queues()
	if err != nil {
		return err
	}
	is := make(map[enforce.Queue]bool, len(queues))
	tell := func(t api.EventType, q enforce.Queue) {
		o.events.tell(Everybody(), api.Event{Type: t, Direction: limit.DirectionName(q.Direction), Netns: q.Netns})
	}
	for _, q := range queues {
		is[q] = true
		if o.noticed.known && !o.noticed.queues[q] {
			tell(api.EventQueueMade, q)
		}
	}
	for q := range o.noticed.queues {
		if o.noticed.known && !is[q] {
			tell(api.EventQueueGone, q)
		}
	}
	o.noticed.queues, o.noticed.known = is, true
	return nil
}

// noticeDrops publishes that drops at a node have begun. The caller holds noticed.mu.
func (o *Observer) noticeDrops(now Sample) {
	s := o.Snapshot()
	seen := make(map[dropKey]dropSeen, 2*s.Count())
	for _, part := range s.nodes {
		for id, n := range part {
			stats := now.Nodes[id]
			for direction, drops := range map[api.Direction]enforce.Drops{api.Up: stats.Datagrams.Dropped, api.Down: stats.Down.Dropped} {
				key := dropKey{id, direction}
				was := o.noticed.drops[key] // of a new node: none
				is := dropSeen{drops: drops, last: was.last}
				if o.noticed.drops != nil && drops.Sum() > was.drops.Sum() {
					is.last = now.At
					if was.last.IsZero() || now.At.Sub(was.last) > dropsQuiet {
						e := n.event(api.EventDropsBegan, "")
						since := dropsSince(drops, was.drops)
						e.Direction, e.Drops = direction, &since
						o.events.tell(n.audience(), e)
					}
				}
				seen[key] = is
			}
		}
	}
	o.noticed.drops = seen
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
