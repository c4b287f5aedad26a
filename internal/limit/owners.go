package limit

import (
	"cmp"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// Owners are the limits of all owners on one subject.
type Owners [enforce.Owners]Limit

// Ceilings returns the ceilings of all owners for the kernel side.
func (o Owners) Ceilings() (c [enforce.Owners][enforce.Directions]enforce.Ceiling) {
	for owner, l := range o {
		for dir, rate := range l.Rates() {
			if rate != 0 {
				c[owner][dir] = enforce.Ceiling{BytesPerSec: rate, BurstNS: l.BurstNS}
			}
		}
	}
	return c
}

// Weight returns the lower of the owners' weights.
func (o Owners) Weight() uint32 {
	weight := uint32(0)
	for _, l := range o {
		if l.Weight != 0 && (weight == 0 || l.Weight < weight) {
			weight = l.Weight
		}
	}
	return cmp.Or(weight, DefaultWeight)
}

// Guarantee returns the administrator's guarantee. A user has none, as the traffic of other users would have to give
// way to it.
func (o Owners) Guarantee() uint64 { return o[enforce.OwnerAdmin].Min }

// Reservation returns the administrator's reservation if they promise anything. Otherwise it returns the user's, which
// stays within the grant.
func (o Owners) Reservation() Slice {
	if o.Guarantee() != 0 {
		return Slice{}
	}
	return cmp.Or(o[enforce.OwnerAdmin].Reserve, o[enforce.OwnerUser].Reserve)
}

// DSCP returns the administrator's mark, or else the user's, plus 1; 0 = none.
func (o Owners) DSCP() uint8 { return cmp.Or(o[enforce.OwnerAdmin].DSCP, o[enforce.OwnerUser].DSCP) }

// Loopback reports whether any owner requests it: it can only make a limit tighter.
func (o Owners) Loopback() bool {
	return slices.ContainsFunc(o[:], func(l Limit) bool { return l.Loopback })
}

// MeterOff reports whether all owners of a total request it: another owner can only make a limit tighter.
func (o Owners) MeterOff() bool {
	off := false
	for _, l := range o {
		if l.Total == 0 {
			continue
		}
		if !l.MeterOff {
			return false
		}
		off = true
	}
	return off
}

// HasTotal reports whether some owner limits both directions together.
func (o Owners) HasTotal() bool {
	return slices.ContainsFunc(o[:], func(l Limit) bool { return l.Total != 0 })
}

// Empty reports whether no owner requests anything.
func (o Owners) Empty() bool {
	return !slices.ContainsFunc(o[:], func(l Limit) bool { return !l.Empty() })
}

// OfNode reads the owners' limits back from a node in the kernel. Settings that the kernel keeps once per node (weight,
// loopback) count as the administrator's if the administrator requests anything, otherwise as the user's.
func OfNode(spec enforce.NodeSpec) (o Owners) {
	for owner, ceilings := range spec.Ceilings {
		o[owner].Up = ceilings[enforce.Up].BytesPerSec
		o[owner].Down = ceilings[enforce.Down].BytesPerSec
		o[owner].Total = ceilings[enforce.Total].BytesPerSec
		for _, c := range ceilings {
			const grain = uint64(100 * time.Microsecond) // the kernel keeps bursts as bytes
			if c.BurstNS+grain < DefaultBurstNS || c.BurstNS > DefaultBurstNS+grain {
				o[owner].BurstNS = max(o[owner].BurstNS, min(c.BurstNS, MaxBurstNS))
			}
		}
	}
	whose := enforce.OwnerAdmin
	if spec.Own {
		whose = enforce.OwnerUser
	}
	if spec.Weight != DefaultWeight {
		o[whose].Weight = spec.Weight
	}
	if spec.PeriodNS == 0 { // the link of a reservation is not known
		o[enforce.OwnerAdmin].Min = spec.Guarantee
	}
	o[enforce.OwnerAdmin].MinDown = spec.GuaranteeDown
	o[enforce.OwnerAdmin].Line = Line{Overhead: spec.Line.OverheadBytes, Least: spec.Line.LeastBytes, ATM: spec.Line.Cells}
	o[whose].Loopback, o[whose].DSCP = spec.Loopback, spec.DSCP
	for owner := range o {
		o[owner].MeterOff = spec.MeterOff && o[owner].Total != 0
	}
	return o
}

// Lowest returns the lowest limit on what is sent or received, in bytes/s; 0 = none. A limit on both directions together
// counts, too.
func (o Owners) Lowest(way enforce.Direction) (rate uint64) {
	for _, l := range o {
		for _, r := range []uint64{l.Rates()[way], l.Total} {
			if r != 0 && (rate == 0 || r < rate) {
				rate = r
			}
		}
	}
	return rate
}
