// Package plan computes what the kernel should hold from records of what is wanted: the nodes, the prefixes and numbers
// of limits on a part of the traffic, what may still be guaranteed, and the steps that lead there from what the kernel
// holds. The package has functions only: no state, no lock, no clock, no call of the kernel, and no file.
package plan

import (
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// Wanted is what owners request of one node, and the two values that depend on other nodes.
type Wanted struct {
	Requested limit.Owners                  // set by commands
	Timed     [enforce.Owners]desired.Timed // set by commands for a time, and first
	Ruled     desired.Rules                 // set by rules
	Reserved  Worth                         // the current worth of its reservation
	BacklogNS uint64                        // time that egress may wait, of a node that follows a path; 0 = no bound
}

// Asks reports whether commands of an owner ask for something.
func (w *Wanted) Asks(owner enforce.Owner) bool {
	return !w.Requested[owner].Empty() || w.Timed[owner] != desired.Timed{}
}

// IsCommanded reports whether commands ask for something.
func (w *Wanted) IsCommanded() bool { return w.Asks(enforce.OwnerAdmin) || w.Asks(enforce.OwnerUser) }

// IsOnlyUsers reports whether the administrator wants nothing of the node.
func (w *Wanted) IsOnlyUsers() bool {
	return !w.Asks(enforce.OwnerAdmin) && w.Ruled.Owners[enforce.OwnerAdmin].Empty()
}

// Holding returns the limits in force of each owner. A limit for a time comes first, then the other limit by a command,
// and the owner's rules fill in the rest.
func (w *Wanted) Holding() (o limit.Owners) {
	for owner := range o {
		o[owner] = w.lasting(enforce.Owner(owner))
		if first := &w.Timed[owner]; first.BoottimeNS != 0 {
			o[owner] = o[owner].With(first.Limit)
		}
	}
	return o
}

// lasting returns an owner's limit without the limit for a time.
func (w *Wanted) lasting(owner enforce.Owner) limit.Limit {
	return w.Requested[owner].Over(w.Ruled.Owners[owner].Wish)
}

// HasEnded reports whether a limit or a reservation has ended at a time on CLOCK_BOOTTIME.
func (w *Wanted) HasEnded(bootNS uint64) bool {
	for owner := range w.Timed {
		if w.Timed[owner].IsOver(bootNS) || w.Requested[owner].Reserve.End.IsOver(bootNS) {
			return true
		}
	}
	return false
}

// End takes out the limits and the reservations that have ended. The caller finds out what the reservation that is left
// is worth.
func (w *Wanted) End(bootNS uint64) {
	for owner := range w.Timed {
		if w.Timed[owner].IsOver(bootNS) {
			w.Timed[owner] = desired.Timed{}
		}
		if w.Requested[owner].Reserve.End.IsOver(bootNS) {
			w.Requested[owner] = w.Requested[owner].Released()
		}
	}
}

// Subject is what the kernel knows a node as, and which part of the subject's traffic it limits.
type Subject struct {
	ID              uint32
	Kind            enforce.Kind
	Key             uint64
	StartBoottimeNS uint64
	IsPart          bool // a command limits a part of the traffic
	IsEach          bool // each address of that part has the limit by itself
}

// Machine is what is set for the whole machine, over what owners request.
type Machine struct {
	InputMeterOff bool // received traffic counts in no total
}

// Spec returns a node as the kernel should hold it.
func Spec(of Subject, w *Wanted, m Machine) enforce.NodeSpec {
	holding := w.Holding()
	spec := enforce.NodeSpec{
		ID:              of.ID,
		Kind:            of.Kind,
		Subject:         of.Key,
		StartBoottimeNS: of.StartBoottimeNS,
		Parent:          w.Ruled.Outer,
		Weight:          holding.Weight(),
		Guarantee:       w.Guarantee(enforce.Up),
		GuaranteeDown:   w.Guarantee(enforce.Down),
		DSCP:            holding.DSCP(),
		Line:            w.Requested[enforce.OwnerAdmin].Line.Enforced(),
		Loopback:        holding.Loopback(),
		MeterOff:        holding.MeterOff() || m.InputMeterOff && holding.HasTotal(),
		BacklogNS:       w.BacklogNS,
		Own:             w.IsOnlyUsers(),
		Ceilings:        holding.Ceilings(),
	}
	w.lapses(&spec.Ceilings)
	if of.IsEach {
		spec.Ceilings, spec.Each = neverReached(spec.Ceilings), true
	}
	// The node of a limit that is never reached exists to note the peers that it meets.
	spec.Notes = of.IsPart && w.Requested[enforce.OwnerAdmin].Up >= limit.NeverReached
	if w.Reserved.Link != 0 {
		s := holding.Reservation()
		spec.PeriodNS, spec.Link, spec.SliceOnly = s.PeriodNS, w.Reserved.Link, !s.Extra
	}
	return spec
}

// Stored returns a preallocated node of a limit for each address, without an id: it has the limit that one address gets.
func Stored(of Subject, w *Wanted, m Machine) enforce.NodeSpec {
	spec := Spec(of, w, m)
	spec.ID, spec.Subject, spec.Store, spec.Each = 0, 0, of.ID, false
	spec.Ceilings = w.Holding().Ceilings()
	return spec
}

// lapses adds to the ceilings of the moment what they become when limits for a time end.
func (w *Wanted) lapses(ceilings *[enforce.Owners][enforce.Directions]enforce.Ceiling) {
	for owner := range w.Timed {
		end := w.Timed[owner].BoottimeNS
		if end == 0 {
			continue
		}
		for dir, rate := range w.lasting(enforce.Owner(owner)).Rates() {
			if c := &ceilings[owner][dir]; c.BytesPerSec != rate {
				c.Lapse = enforce.Lapse{BoottimeNS: end, BytesPerSec: rate}
			}
		}
	}
}

// neverReached returns the ceilings of the limit on all addresses: those requested for each, with a rate out of reach.
func neverReached(c [enforce.Owners][enforce.Directions]enforce.Ceiling) [enforce.Owners][enforce.Directions]enforce.Ceiling {
	for owner := range c {
		for dir := range c[owner] {
			if c[owner][dir].BytesPerSec != 0 {
				c[owner][dir] = enforce.Ceiling{BytesPerSec: limit.NeverReached}
			}
		}
	}
	return c
}
