package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// window says when a rule holds: at these times of the day, local time, on these
// days of the week. A span over midnight belongs to the day on which it begins. The
// zero value means always.
type window struct {
	spans []span
	days  [7]bool // index: time.Weekday
	some  bool    // days are set
}

// span is a part of a day in minutes from midnight; it ends on the next day if
// the end is not later.
type span struct{ from, to int }

const dayMinutes = 24 * 60

func (w window) always() bool { return len(w.spans) == 0 && !w.some }

func (w window) onDay(d time.Weekday) bool { return !w.some || w.days[d] }

// active reports whether the rule holds at t, in t's location.
func (w window) active(t time.Time) bool {
	today := w.onDay(t.Weekday())
	if len(w.spans) == 0 {
		return today
	}
	yesterday := w.onDay((t.Weekday() + 6) % 7)
	at := t.Hour()*60 + t.Minute()
	for _, s := range w.spans {
		over := s.to <= s.from
		switch {
		case today && at >= s.from && (over || at < s.to):
			return true
		case over && yesterday && at < s.to:
			return true
		}
	}
	return false
}

func parseSpan(text string) (span, error) {
	from, to, ok := strings.Cut(text, "-")
	if ok {
		a, errA := parseClock(from)
		b, errB := parseClock(to)
		if errA == nil && errB == nil && a < dayMinutes && a != b {
			return span{a, b}, nil
		}
	}
	return span{}, fmt.Errorf("%q is no span of a day", text)
}

func parseClock(text string) (int, error) {
	h, m, ok := strings.Cut(strings.TrimSpace(text), ":")
	hour, errH := strconv.ParseUint(h, 10, 8)
	minute, errM := strconv.ParseUint(m, 10, 8)
	at := int(hour)*60 + int(minute)
	if !ok || errH != nil || errM != nil || len(m) != 2 || minute > 59 || at > dayMinutes {
		return 0, fmt.Errorf("%q is no time of a day", text)
	}
	return at, nil
}

// addDays reads "mon" or "mon-fri", which may go round the week's end.
func (w *window) addDays(text string) error {
	from, to, isSpan := strings.Cut(strings.ToLower(text), "-")
	first, ok := weekday(from)
	last := first
	if isSpan && ok {
		last, ok = weekday(to)
	}
	if !ok {
		return fmt.Errorf("%q is no day of the week", text)
	}
	w.some = true
	for d := first; ; d = (d + 1) % 7 {
		w.days[d] = true
		if d == last {
			return nil
		}
	}
}

func weekday(text string) (time.Weekday, bool) {
	text = strings.TrimSpace(text)
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		if text == name || text == name[:3] {
			return d, true
		}
	}
	return 0, false
}
