package limit

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// Rate is a field that is a rate in bytes/s, where 0 means none.
type Rate struct {
	Name      string // also of its flag
	Direction enforce.Direction
	Least     bool // a guarantee, not a ceiling
	Of        func(*Limit) *uint64
	Asked     func(*api.Wish) *uint64 // nil = the request leaves it as it is
}

// Rates are the fields that are rates.
var Rates = []Rate{
	{
		"up", enforce.Up, false,
		func(l *Limit) *uint64 { return &l.Up },
		func(w *api.Wish) *uint64 { return w.UpBytesPerSec },
	},
	{
		"down", enforce.Down, false,
		func(l *Limit) *uint64 { return &l.Down },
		func(w *api.Wish) *uint64 { return w.DownBytesPerSec },
	},
	{
		"total", enforce.Total, false,
		func(l *Limit) *uint64 { return &l.Total },
		func(w *api.Wish) *uint64 { return w.TotalBytesPerSec },
	},
	{
		"min", enforce.Up, true,
		func(l *Limit) *uint64 { return &l.Min },
		func(w *api.Wish) *uint64 { return w.MinBytesPerSec },
	},
	{
		"min-down", enforce.Down, true,
		func(l *Limit) *uint64 { return &l.MinDown },
		func(w *api.Wish) *uint64 { return w.MinDownBytesPerSec },
	},
}

// field says how one field of a limit follows from a request.
type field struct {
	name  string
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

// fields are all the fields of a limit. The reservation stands behind the guarantee, which it replaces.
var fields = append(rateFields(), []field{
	{
		name:   "reserve",
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
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.Grant != nil },
		lifts:  func(w *api.Wish) bool { return w.Grant.PPM == 0 },
		stands: func(l *Limit) bool { return l.Grant != Grant{} },
		merge:  func(l *Limit, w *api.Wish) { l.Grant = GrantOf(*w.Grant) },
	},
	{
		name:   "dscp",
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.DSCP != nil },
		lifts:  func(w *api.Wish) bool { return *w.DSCP < 0 },
		stands: func(l *Limit) bool { return l.DSCP != 0 },
		merge:  func(l *Limit, w *api.Wish) { l.DSCP = uint8(*w.DSCP + 1) },
	},
	{
		name:   "weight",
		whole:  true,
		asked:  func(w *api.Wish) bool { return w.Weight != nil },
		lifts:  func(w *api.Wish) bool { return *w.Weight == 0 },
		stands: func(l *Limit) bool { return l.Weight != 0 },
		merge:  func(l *Limit, w *api.Wish) { l.Weight = *w.Weight },
	},
	{
		name:  "burst",
		asked: func(w *api.Wish) bool { return w.BurstNS != nil },
		merge: func(l *Limit, w *api.Wish) { l.BurstNS = *w.BurstNS },
	},
	{
		name:  "line",
		asked: func(w *api.Wish) bool { return w.Line != nil },
		merge: func(l *Limit, w *api.Wish) { l.Line = LineOf(*w.Line) },
	},
	{
		name:  "loopback",
		asked: func(w *api.Wish) bool { return w.Loopback != nil },
		merge: func(l *Limit, w *api.Wish) { l.Loopback = *w.Loopback },
	},
	{
		name:  "input-meter",
		asked: func(w *api.Wish) bool { return w.InputMeter != nil },
		merge: func(l *Limit, w *api.Wish) { l.MeterOff = !*w.InputMeter },
	},
	{
		name:  "persist",
		asked: func(w *api.Wish) bool { return w.Persist != nil },
		merge: func(l *Limit, w *api.Wish) { l.UntilReboot = !*w.Persist },
	},
}...)

func rateFields() (list []field) {
	for _, r := range Rates {
		list = append(list, field{
			name:   r.Name,
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
