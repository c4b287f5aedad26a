package rules

import (
	"cmp"
	"strings"

	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/units"
)

// noteRate adds a note about a rate that people may read in another way than netnice.
func (o object) noteRate(r *Rule, key, text string) {
	notes := []string{units.AmbiguityNote(text)}
	if !strings.HasPrefix(key, "min") { // a guarantee may be arbitrarily low
		notes = append(notes, units.LowRateNote(text))
	}
	at := o.at.of(o.index, key)
	for _, note := range notes {
		if note != "" {
			r.Notes = append(r.Notes, &Problem{File: o.file, Line: at.line, Column: at.column, Message: key + ": " + note})
		}
	}
}

// WeightNotes returns a note on the first rule with a weight or a guarantee: it needs a limit around the processes that
// it matches. There is no note if one of the rules sets a limit that processes share. The remedy names the device by
// which the machine reaches others; device returns it, "" if that is not known.
func WeightNotes(list []*Rule, device func() string) Problems {
	var first *Rule
	for _, r := range list {
		l := r.Limits
		if r.Share == ShareAll && !r.Destined() && (isRate(l.UpBytesPerSec) || isRate(l.DownBytesPerSec) || isRate(l.TotalBytesPerSec)) {
			return nil
		}
		if first == nil && (l.Weight != 0 && l.Weight != limit.DefaultWeight || l.MinBytesPerSec != 0 || l.MinDownBytesPerSec != 0) {
			first = r
		}
	}
	if first == nil {
		return nil
	}
	return Problems{{
		File: first.File, Line: first.Line, Column: 1,
		Message: "a weight or a guarantee is a part of a limit around what the rule matches, and no rule here sets one: it needs that of a user, the host or the line",
		Remedy:  "netnice ls shows whether one stands; that of the line: sudo netnice link " + cmp.Or(device(), "DEVICE") + " --measure HOST, or --rate RATE",
	}}
}

func isRate(rate *uint64) bool { return rate != nil && *rate != 0 }
