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
	UntilNS  int64  `json:"until_unix_ns,omitempty"` // 0 = until it is released; since version 7 of the state
}

// SliceOf returns the slice of a request.
func SliceOf(r api.Reservation) Slice {
	if r.SliceNS == 0 {
		return Slice{}
	}
	s := Slice{Link: r.Link, PeriodNS: r.PeriodNS, SliceNS: r.SliceNS, Extra: r.Extra}
	if r.ForNS != 0 {
		s.UntilNS = time.Now().Add(time.Duration(r.ForNS)).UnixNano()
	}
	return s
}

// API returns the slice as answers show it, nil for none.
func (s Slice) API() *api.Reservation {
	if s == (Slice{}) {
		return nil
	}
	r := api.Reservation{Link: s.Link, PeriodNS: s.PeriodNS, SliceNS: s.SliceNS, Extra: s.Extra}
	if s.UntilNS != 0 {
		r.ForNS = uint64(max(s.UntilNS-time.Now().UnixNano(), 1))
	}
	return &r
}

// IsOver reports whether the reservation has ended at a time.
func (s Slice) IsOver(at time.Time) bool { return s.UntilNS != 0 && at.UnixNano() >= s.UntilNS }

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
