package limit

// End is the moment at which a limit or a reservation ends by itself. The zero value is that of one without an end.
type End struct {
	// BoottimeNS is the end on CLOCK_BOOTTIME of the boot in which it was set. UnixNS finds it in a later boot.
	BoottimeNS uint64 `json:"end_boottime_ns"`
	UnixNS     int64  `json:"end_unix_ns"`
	// SpanNS is the time that was asked for. It bounds what is left where the wall clock was wrong.
	SpanNS uint64 `json:"span_ns"`
}

// Moment is a moment on both clocks.
type Moment struct {
	BoottimeNS uint64
	UnixNS     int64
}

// In returns the end of what lasts for a time from a moment on. Without a time it has no end.
func (m Moment) In(spanNS uint64) End {
	if spanNS == 0 {
		return End{}
	}
	return End{BoottimeNS: m.BoottimeNS + spanNS, UnixNS: m.UnixNS + int64(spanNS), SpanNS: spanNS}
}

// InBootOf returns the end in the boot of a moment, if another boot has set it: on the wall clock it stays the same, but
// no more is left than was asked for.
func (e End) InBootOf(now Moment) End {
	if e == (End{}) {
		return e
	}
	moved := now.In(uint64(max(min(e.UnixNS-now.UnixNS, int64(e.SpanNS)), 1)))
	moved.SpanNS = e.SpanNS
	return moved
}

// IsOver reports whether the end has come at a time on CLOCK_BOOTTIME.
func (e End) IsOver(bootNS uint64) bool { return e != End{} && bootNS >= e.BoottimeNS }

// LeftNS returns the time until the end, at least 1; without an end it returns 0.
func (e End) LeftNS(bootNS uint64) uint64 {
	if e == (End{}) {
		return 0
	}
	return max(e.BoottimeNS, bootNS+1) - bootNS
}
