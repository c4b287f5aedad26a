package daemon

import "time"

// What users' own rules may cost everybody: the daemon reads and compares them, for the
// administrator's rules and for other users, too.

const (
	// A user's own rules may take so much time to be compared at once, and such a part of
	// all time; more, and they are not compared for a while.
	mostRuleDebt  = 500 * time.Millisecond
	ruleTimeShare = 20 // 1/20
)

// ruleDebt is what a user's own rules took to compare, and have not paid for by waiting.
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
