package clock

// Reservation is a slice of a clock's time in each period, period by period: the exact model of
// bpf/reservation.h. Times are in ns.
type Reservation struct {
	PeriodNS   uint64
	SliceBytes int64 // what a slice is worth
	Rate       uint64
	// Sent is when all chunks of the clock's reservations have been sent, which share it.
	Sent *uint64

	began   uint64 // the present period
	left    int64  // bytes of its slice; below 0: what is missing of the next ones
	started bool
}

// SliceBytes is what a slice is worth of a reservation of so many bytes/s.
func SliceBytes(guarantee, periodNS uint64) int64 {
	return max(int64(guarantee*periodNS/1_000_000_000), 1)
}

// Charge enters bytes that leave at now, not earlier than they may, and returns when the next
// may leave.
func (r *Reservation) Charge(bytes, now uint64) uint64 {
	if !r.started || r.left >= 0 && now >= r.began+2*r.PeriodNS {
		r.started, r.began, r.left = true, now, r.SliceBytes
	}
	for now >= r.began+r.PeriodNS {
		r.began += r.PeriodNS
		r.left = min(r.left, 0) + r.SliceBytes // what was not used is lost
	}
	r.left -= int64(bytes)
	takes := bytes * 1_000_000_000 / r.Rate
	*r.Sent = min(max(*r.Sent, now), now+r.PeriodNS) + takes
	if r.left > 0 { // others' turns, but in time for the rest of the slice
		last := r.began + r.PeriodNS - uint64(r.left)*1_000_000_000/r.Rate
		return max(min(*r.Sent, last), now+takes)
	}
	at := r.began
	for left := r.left; left <= 0; left += r.SliceBytes {
		at += r.PeriodNS
	}
	return at
}
