package plan

import (
	"slices"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// Worth is the worth of a reservation while its link has a limit: the reserved part of that limit. The zero value is
// that of no reservation.
type Worth struct {
	Link        uint32 // node of the link
	BytesPerSec uint64
}

// WorthOf returns the worth of a reservation on a link with a limit on sending; without that limit it is nothing.
func WorthOf(s limit.Slice, link uint32, bytesPerSec uint64) Worth {
	if s == (limit.Slice{}) || bytesPerSec == 0 {
		return Worth{}
	}
	return Worth{Link: link, BytesPerSec: RateOf(bytesPerSec, s.SliceNS, s.PeriodNS)}
}

// RateOf returns the worth of sliceNS in each periodNS of a limit, in bytes/s.
func RateOf(bytesPerSec, sliceNS, periodNS uint64) uint64 {
	return max(limit.PartOf(bytesPerSec, sliceNS, periodNS), 1)
}

// Guarantee returns the node's guarantee on sending, or on receiving, in bytes/s.
func (w *Wanted) Guarantee(way enforce.Direction) uint64 {
	if w.PromisesNothing() {
		return 0
	}
	holding := w.Holding()
	switch {
	case way == enforce.Down:
		return holding[enforce.OwnerAdmin].MinDown
	case holding.Reservation() != limit.Slice{}:
		return w.Reserved.BytesPerSec
	}
	return holding.Guarantee()
}

// PromisesNothing reports whether nobody has asked for a guarantee or a reservation of the node, as of most.
func (w *Wanted) PromisesNothing() bool {
	for owner := range w.Requested {
		for _, l := range []*limit.Limit{&w.Requested[owner], &w.Ruled.Owners[owner].Wish} {
			if l.Min != 0 || l.MinDown != 0 || l.Reserve.SliceNS != 0 {
				return false
			}
		}
	}
	return true
}

// Enclosing is a limit that encloses a node, or would. Guarantees inside are parts of it.
type Enclosing struct {
	BytesPerSec uint64
	Taken       uint64 // the sum of the other guarantees inside, in bytes/s
	IsElastic   bool   // the rate follows a path, and promises nothing
}

// Most returns how much of the limit may be guaranteed, in bytes/s.
func (e Enclosing) Most() uint64 { return limit.MostGuaranteed(e.BytesPerSec) }

// Left returns how much of it may still be guaranteed.
func (e Enclosing) Left() uint64 { return e.Most() - min(e.Most(), e.Taken) }

// Refusing returns the position of the first enclosing limit into which a guarantee does not fit, -1 = it fits into all.
func Refusing(bytesPerSec uint64, around []Enclosing) int {
	return slices.IndexFunc(around, func(e Enclosing) bool { return bytesPerSec > e.Left() && !e.IsElastic })
}
