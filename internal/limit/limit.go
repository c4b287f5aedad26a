// Package limit defines a limit, which is one owner's request for one subject. It has one table of a limit's fields (see
// fields.go), which drives everything that treats fields alike. It knows no subjects, and nothing that is in force.
package limit

import (
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

const (
	// DefaultWeight is the weight of a subject for which no owner has set one.
	DefaultWeight = enforce.DefaultWeight
	// MaxWeight is the highest weight.
	MaxWeight = enforce.MaxWeight
	// DefaultBurstNS is the burst of a limit for which no owner has set one.
	DefaultBurstNS = uint64(enforce.DefaultBurst)
	// MaxBurstNS is the longest burst.
	MaxBurstNS = uint64(time.Minute)
	// MaxDSCP is the highest value of a DSCP.
	MaxDSCP = 63
	// NeverReached is a rate in bytes/s that no traffic reaches. The node of such a limit on a part of the traffic notes
	// the peers that it meets.
	NeverReached = 100_000_000_000
)

// Limit is one owner's request for a subject. The zero value requests nothing. Its JSON form is that of the state file.
type Limit struct {
	Up       uint64 `json:"up_bytes_per_sec,omitempty"`
	Down     uint64 `json:"down_bytes_per_sec,omitempty"`
	Total    uint64 `json:"total_bytes_per_sec,omitempty"`
	BurstNS  uint64 `json:"burst_ns,omitempty"` // 0 = DefaultBurstNS
	Weight   uint32 `json:"weight,omitempty"`   // 0 = not set
	Min      uint64 `json:"min_bytes_per_sec,omitempty"`
	MinDown  uint64 `json:"min_down_bytes_per_sec,omitempty"` // since version 7 of the state
	Reserve  Slice  `json:"reserve,omitzero"`                 // instead of Min; since version 6 of the state
	Grant    Grant  `json:"grant,omitzero"`                   // since version 7
	DSCP     uint8  `json:"dscp_and_1,omitempty"`             // 0 = none
	Line     Line   `json:"line,omitzero"`                    // of a link
	Loopback bool   `json:"loopback,omitempty"`
	MeterOff bool   `json:"input_meter_off,omitempty"` // received bytes do not count in total
	// UntilReboot says that the limit ends with a reboot; since version 4 of the state.
	UntilReboot bool `json:"until_reboot,omitempty"`
}

// Rates returns the ceilings by direction.
func (l Limit) Rates() [enforce.Directions]uint64 {
	return [enforce.Directions]uint64{enforce.Up: l.Up, enforce.Down: l.Down, enforce.Total: l.Total}
}

// Empty reports whether the limit requests nothing of the kernel: some fields only qualify others.
func (l Limit) Empty() bool {
	for _, f := range fields {
		if f.stands != nil && f.stands(&l) {
			return false
		}
	}
	return true
}

// Over returns l, with the rates and the weight of other where l has none.
func (l Limit) Over(other Limit) Limit {
	if other == (Limit{}) {
		return l // as most are
	}
	for _, r := range Rates {
		if to := r.Of(&l); *to == 0 {
			*to = *r.Of(&other)
		}
	}
	if l.Weight == 0 {
		l.Weight = other.Weight
	}
	return l
}

// Merge returns l with the fields of a request. If a request takes away the last field but the weight, it takes away
// the weight and all that qualifies, too.
func (l Limit) Merge(request api.Wish) Limit {
	lifts := false
	for _, f := range fields {
		if !f.asked(&request) {
			continue
		}
		lifts = lifts || f.stands != nil && f.lifts(&request) && f.stands(&l)
		f.merge(&l, &request)
	}
	left := l
	if request.Weight == nil || *request.Weight == 0 {
		left.Weight = 0
	}
	if lifts && left.Empty() || l.Empty() {
		return Limit{}
	}
	return l
}

// Released returns l without its reservation. Without another field, nothing is left of what only qualifies others.
func (l Limit) Released() Limit { return l.Merge(api.Wish{Reserve: &api.Reservation{}}) }

// WholeOnly reports whether a request names a field that has no meaning for a part of a subject's traffic.
func WholeOnly(request api.Wish) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.whole && f.asked(&request) })
}

// LiftsOnly reports whether a request takes away fields, at least one, and sets none.
func LiftsOnly(request api.Wish) bool {
	lifts := false
	for _, f := range fields {
		if f.stands == nil || !f.asked(&request) {
			continue
		}
		if !f.lifts(&request) {
			return false
		}
		lifts = true
	}
	return lifts
}

// With returns l with the rates of a limit that comes before it.
func (l Limit) With(first Limit) Limit {
	for _, r := range Rates {
		if rate := *r.Of(&first); rate != 0 {
			*r.Of(&l) = rate
		}
	}
	return l
}

// Without returns l without the rates that a request names.
func (l Limit) Without(request api.Wish) Limit {
	for _, r := range Rates {
		if r.Asked(&request) != nil {
			*r.Of(&l) = 0
		}
	}
	return l
}

// RatesOnly reports whether a request sets ceilings, at least one, and nothing else.
func RatesOnly(request api.Wish) bool {
	asked := false
	for _, f := range fields {
		if !f.asked(&request) {
			continue
		}
		if !f.rate || f.whole || f.lifts(&request) {
			return false
		}
		asked = true
	}
	return asked
}
