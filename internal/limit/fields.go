package limit

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/units"
)

// Rate is a field that is a rate in bytes/s, where 0 means none.
type Rate struct {
	Name      string // also of its flag
	Means     string // for people
	Direction enforce.Direction
	Least     bool // a guarantee, not a ceiling
	Of        func(*Limit) *uint64
	Asked     func(*api.Wish) *uint64 // nil = the request leaves it as it is
}

// Rates are the fields that are rates.
var Rates = []Rate{
	{
		"up", "the most that the subject sends", enforce.Up, false,
		func(l *Limit) *uint64 { return &l.Up },
		func(w *api.Wish) *uint64 { return w.UpBytesPerSec },
	},
	{
		"down", "the most that it receives", enforce.Down, false,
		func(l *Limit) *uint64 { return &l.Down },
		func(w *api.Wish) *uint64 { return w.DownBytesPerSec },
	},
	{
		"total", "the most that it sends and receives together", enforce.Total, false,
		func(l *Limit) *uint64 { return &l.Total },
		func(w *api.Wish) *uint64 { return w.TotalBytesPerSec },
	},
	{
		"min", "the rate of sending that is guaranteed inside every enclosing limit", enforce.Up, true,
		func(l *Limit) *uint64 { return &l.Min },
		func(w *api.Wish) *uint64 { return w.MinBytesPerSec },
	},
	{
		"min-down", "the same guarantee for what it receives by TCP", enforce.Down, true,
		func(l *Limit) *uint64 { return &l.MinDown },
		func(w *api.Wish) *uint64 { return w.MinDownBytesPerSec },
	},
}

// field says how one field of a limit follows from a request.
type field struct {
	name string
	// means and values say what the field is and which values a request may give it, for people.
	means, values string

	asked func(*api.Wish) bool // the request sets it or takes it away
	lifts func(*api.Wish) bool // the request takes it away
	merge func(*Limit, *api.Wish)
	// stands reports whether a limit has the field, and by it requests something of the kernel. It is nil for fields
	// that only qualify others; these have no lifts either.
	stands func(*Limit) bool
	rate   bool
	// whole says that the field has a meaning for all of a subject's traffic only, not for a part of it.
	whole bool
}

// trueOrFalse are the values of a field that is a yes or a no.
const trueOrFalse = "true or false"

// fields are all the fields of a limit. The reservation stands behind the guarantee, which it replaces.
var fields = append(rateFields(), []field{
	{
		name:   "reserve",
		means:  "a slice of a link's time in each period",
		values: fmt.Sprintf("a period of %v to %v, and a slice of at most the period; for at most %d years", time.Duration(MinPeriodNS), time.Duration(MaxPeriodNS), MaxYears),
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.Reserve != nil },
		lifts:  func(w *api.Wish) bool { return w.Reserve.SliceNS == 0 },
		stands: func(l *Limit) bool { return l.Reserve != Slice{} },
		merge: func(l *Limit, w *api.Wish) {
			l.Reserve = SliceOf(*w.Reserve)
			if l.Reserve != (Slice{}) {
				l.Min = 0
			}
		},
	},
	{
		name:   "grant",
		means:  "the part of a link that a user may reserve",
		values: "0 to 100% of the link's limit on sending",
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.Grant != nil },
		lifts:  func(w *api.Wish) bool { return w.Grant.PPM == 0 },
		stands: func(l *Limit) bool { return l.Grant != Grant{} },
		merge:  func(l *Limit, w *api.Wish) { l.Grant = GrantOf(*w.Grant) },
	},
	{
		name:   "dscp",
		means:  "the mark of the packets that the subject sends",
		values: fmt.Sprintf("0 to %d; -1 lifts", MaxDSCP),
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.DSCP != nil },
		lifts:  func(w *api.Wish) bool { return *w.DSCP < 0 },
		stands: func(l *Limit) bool { return l.DSCP != 0 },
		merge:  func(l *Limit, w *api.Wish) { l.DSCP = uint8(*w.DSCP + 1) },
	},
	{
		name:   "weight",
		means:  "the share beside others inside the same limit",
		values: fmt.Sprintf("1 to %d, and %d if nobody has set one; 0 lifts", MaxWeight, DefaultWeight),
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.Weight != nil },
		lifts:  func(w *api.Wish) bool { return *w.Weight == 0 },
		stands: func(l *Limit) bool { return l.Weight != 0 },
		merge:  func(l *Limit, w *api.Wish) { l.Weight = *w.Weight },
	},
	{
		name:   "burst",
		means:  "how much may leave at once, as time at the limit's rate",
		values: fmt.Sprintf("at most %.0f s; 0 means %v", time.Duration(MaxBurstNS).Seconds(), time.Duration(DefaultBurstNS)),
		asked:  func(w *api.Wish) bool { return w.BurstNS != nil },
		merge:  func(l *Limit, w *api.Wish) { l.BurstNS = *w.BurstNS },
	},
	{
		name:   "line",
		means:  "what the link layer adds to each packet of a link",
		values: fmt.Sprintf("an overhead of at most %d bytes; a least size of at most %d bytes", MaxOverhead, MaxLeast),
		asked:  func(w *api.Wish) bool { return w.Line != nil },
		merge:  func(l *Limit, w *api.Wish) { l.Line = LineOf(*w.Line) },
	},
	{
		name:   "loopback",
		means:  "whether the limit also covers traffic of the machine to itself",
		values: trueOrFalse,
		asked:  func(w *api.Wish) bool { return w.Loopback != nil },
		merge:  func(l *Limit, w *api.Wish) { l.Loopback = *w.Loopback },
	},
	{
		name:   "input-meter",
		means:  "whether received bytes count against the total",
		values: trueOrFalse,
		asked:  func(w *api.Wish) bool { return w.InputMeter != nil },
		merge:  func(l *Limit, w *api.Wish) { l.MeterOff = !*w.InputMeter },
	},
	{
		name:   "persist",
		means:  "whether the limit comes back after a reboot",
		values: trueOrFalse,
		asked:  func(w *api.Wish) bool { return w.Persist != nil },
		merge:  func(l *Limit, w *api.Wish) { l.UntilReboot = !*w.Persist },
	},
}...)

func rateFields() (list []field) {
	for _, r := range Rates {
		list = append(list, field{
			name:   r.Name,
			means:  r.Means,
			values: fmt.Sprintf("a rate of at most %d bytes/s; 0 lifts", units.MaxRate),
			rate:   true,
			whole:  r.Least,
			asked:  func(w *api.Wish) bool { return r.Asked(w) != nil },
			lifts:  func(w *api.Wish) bool { return *r.Asked(w) == 0 },
			stands: func(l *Limit) bool { return *r.Of(l) != 0 },
			merge: func(l *Limit, w *api.Wish) {
				*r.Of(l) = *r.Asked(w)
				if r.Name == "min" && l.Min != 0 {
					l.Reserve = Slice{}
				}
			},
		})
	}
	return list
}

// Field is a field of a limit, for people. docs/reference/limits.md has the table.
type Field struct {
	Name, Means, Values string
	// IsWholeOnly says that the field has no meaning for a part of a subject's traffic.
	IsWholeOnly bool
}

// Fields returns the table of fields, for people.
func Fields() (list []Field) {
	for _, f := range fields {
		list = append(list, Field{Name: f.name, Means: f.means, Values: f.values, IsWholeOnly: f.whole})
	}
	return list
}
