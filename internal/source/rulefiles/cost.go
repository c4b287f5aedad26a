package rulefiles

import "time"

// Users' own rules cost everybody time: the source reads and compares them while the administrator's rules and other
// users wait. These bounds limit that time.

const (
	// mostRuleDebt bounds the time that comparing a user's own rules may take at once. ruleTimeShare bounds it as a
	// part of all time. Beyond these bounds the rules are not compared for a while.
	mostRuleDebt  = 500 * time.Millisecond
	ruleTimeShare = 20 // 1/20
)

// ruleDebt is the time that comparing a user's own rules took, less the part that has been paid for by waiting.
type ruleDebt struct {
	took time.Duration
	at   time.Time
}

// may reports whether the rules may be compared now.
func (d *ruleDebt) may(now time.Time) bool {
	if !d.at.IsZero() {
		d.took = max(0, d.took-now.Sub(d.at)/ruleTimeShare)
	}
	d.at = now
	return d.took < mostRuleDebt
}
