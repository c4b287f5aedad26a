package observe

import (
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// reading holds the counters at one tick.
type reading struct {
	at      time.Time
	nodes   map[uint32]point
	unknown point
}

// readings are those of the last two ticks, newest first; nil = there was none.
type readings [2]*reading

// readingOf keeps of a sample what rates are computed from.
func readingOf(now Sample) *reading {
	r := &reading{at: now.At, nodes: make(map[uint32]point, len(now.Nodes)), unknown: unknownPoint(now)}
	for id, stats := range now.Nodes {
		r.nodes[id] = pointOf(now.At, stats)
	}
	return r
}

// of returns the counters of a node at the last ticks since it exists, and before these when they were 0.
func (r *readings) of(n *Node) (h history) {
	i := 0
	for _, one := range r {
		if one == nil || !one.at.After(n.CountsFrom) {
			break
		}
		h[i] = one.nodes[n.ID]
		h[i].at = one.at
		i++
	}
	if i < len(h) && !n.CountsFrom.IsZero() {
		h[i] = point{at: n.CountsFrom}
	}
	return h
}

// ofUnknown returns the counters of traffic whose owner is unknown at the last ticks.
func (r *readings) ofUnknown() (h history) {
	for i, one := range r {
		if one != nil {
			h[i] = one.unknown
		}
	}
	return h
}

// history holds two earlier readings of some counters, newest first.
type history [2]point

// point is one reading of the counters of a node, or of other counters.
type point struct {
	at    time.Time
	bytes uint64 // sent
	down  uint64
	total uint64 // charged to a limit on both directions together
}

func pointOf(at time.Time, s enforce.NodeStats) point {
	return point{at: at, bytes: s.Bytes, down: s.Down.Bytes, total: s.TotalBytes}
}

// flowRates holds rates in bytes/s: sent, received, and charged to a limit on both directions together.
type flowRates struct{ up, down, total uint64 }

// rates returns how fast the counters have grown since the newest reading that is at least as old as least.
func (h history) rates(now point, least time.Duration) flowRates {
	from := h[0]
	if now.at.Sub(from.at) < least && !h[1].at.IsZero() {
		from = h[1]
	}
	span := now.at.Sub(from.at)
	if from.at.IsZero() || span < least/10 || span <= 0 {
		return flowRates{}
	}
	since := func(from, now uint64) uint64 {
		if now < from { // the node was created again
			from = 0
		}
		return uint64(float64(now-from) / span.Seconds())
	}
	return flowRates{up: since(from.bytes, now.bytes), down: since(from.down, now.down), total: since(from.total, now.total)}
}
