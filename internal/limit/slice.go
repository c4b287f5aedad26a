package limit

import (
	"time"

	"github.com/netnice/netnice/api"
)

// The bounds of a slice's period, in ns, and of the time that a limit or a reservation lasts.
const (
	MinPeriodNS = uint64(time.Millisecond)
	MaxPeriodNS = uint64(time.Second)
	MinForNS    = uint64(time.Second) // of a limit
	MaxForNS    = uint64(MaxYears * 365 * 24 * time.Hour)
	MaxYears    = 10
)

// Slice is a reservation of a link's time, as one owner requests it. The zero value is no reservation.
type Slice struct {
	Link     string `json:"link"`
	PeriodNS uint64 `json:"period_ns"`
	SliceNS  uint64 `json:"slice_ns"`
	Extra    bool   `json:"extra,omitempty"`
	End      End    `json:"end,omitzero"` // since version 13 of the state
	// UntilNS is the end on the wall clock. It exists only in files of the versions 7 to 12.
	UntilNS int64 `json:"until_unix_ns,omitempty"`
}

// SliceOf returns the slice of a request, without an end.
func SliceOf(r api.Reservation) Slice {
	if r.SliceNS == 0 {
		return Slice{}
	}
	return Slice{Link: r.Link, PeriodNS: r.PeriodNS, SliceNS: r.SliceNS, Extra: r.Extra}
}

// API returns the slice as answers show it at a time on CLOCK_BOOTTIME, nil for none.
func (s Slice) API(bootNS uint64) *api.Reservation {
	if s == (Slice{}) {
		return nil
	}
	return &api.Reservation{Link: s.Link, PeriodNS: s.PeriodNS, SliceNS: s.SliceNS, Extra: s.Extra, ForNS: s.End.LeftNS(bootNS)}
}

// InThisForm returns a slice that a former release has written in the form of this one.
func (s Slice) InThisForm(now Moment) Slice {
	if s.UntilNS != 0 {
		s.End = now.In(uint64(max(s.UntilNS-now.UnixNS, 1)))
		s.UntilNS = 0
	}
	return s
}

// Valid reports whether a link can be divided into such a slice.
func (s Slice) Valid() bool {
	return s.SliceNS != 0 && s.SliceNS <= s.PeriodNS && s.PeriodNS >= MinPeriodNS && s.PeriodNS <= MaxPeriodNS
}

// Grant is a part of a link's limit on sending that a user may reserve. The zero value is no grant.
type Grant struct {
	Link string `json:"link"`
	PPM  uint32 `json:"part_ppm"`
}

// WholePPM is a grant of the whole link.
const WholePPM = 1_000_000

// GrantOf returns the grant of a request.
func GrantOf(g api.Grant) Grant {
	if g.PPM == 0 {
		return Grant{}
	}
	return Grant(g)
}

// API returns the grant as answers show it, nil for none.
func (g Grant) API() *api.Grant {
	if g == (Grant{}) {
		return nil
	}
	a := api.Grant(g)
	return &a
}
