package rules

import (
	"strings"

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
