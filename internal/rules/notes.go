package rules

import (
	"strings"

	"github.com/netnice/netnice/internal/units"
)

// noteRate keeps how a rate was read where people may read it otherwise.
func (o object) noteRate(r *Rule, key, text string) {
	notes := []string{units.AmbiguityNote(text)}
	if !strings.HasPrefix(key, "min") { // a guarantee may be as low as it likes
		notes = append(notes, units.LowRateNote(text))
	}
	at := o.at.of(o.index, key)
	for _, note := range notes {
		if note != "" {
			r.Notes = append(r.Notes, &Problem{File: o.file, Line: at.line, Column: at.column, Message: key + ": " + note})
		}
	}
}
