package clock

// Reservation gives a slice of a clock's time in each period, period by period. It is the exact model of
// bpf/reservation.h. Times are in ns.
type Reservation struct {
	PeriodNS   uint64
	SliceBytes int64 // bytes that a slice is worth
	Rate       uint64
	// Sent is the time at which all chunks of the clock's reservations have been sent. These reservations share it.
	Sent *uint64

	began   uint64 // beginning of the present period
	left    int64  // bytes left of its slice; below 0: bytes that the next slices lack
	started bool
}

// SliceBytes returns the bytes that a slice is worth, for a reservation of guarantee bytes/s.
func SliceBytes(guarantee, periodNS uint64) int64 {
	return max(int64(guarantee*periodNS/1_000_000_000), 1)
}

// Charge charges bytes that leave at now, which is not before they may leave. It returns when the next bytes may leave.
func (r *Reservation) Charge(bytes, now uint64) uint64 {
	if !r.started || r.left >= 0 && now >= r.began+2*r.PeriodNS {
		r.started, r.began, r.left = true, now, r.SliceBytes
	}
	for now >= r.began+r.PeriodNS {
		r.began += r.PeriodNS
		r.left = min(r.left, 0) + r.SliceBytes // unused bytes are lost
	}
	r.left -= int64(bytes)
	takes := bytes * 1_000_000_000 / r.Rate
	*r.Sent = min(max(*r.Sent, now), now+r.PeriodNS) + takes
	if r.left > 0 { // other reservations send first, but the rest of the slice leaves in time
		last := r.began + r.PeriodNS - uint64(r.left)*1_000_000_000/r.Rate
		return max(min(*r.Sent, last), now+takes)
	}
	at := r.began
	for left := r.left; left <= 0; left += r.SliceBytes {
		at += r.PeriodNS
	}
	return at
}
