package daemon

import "time"

// What users' own rules may cost everybody: the daemon reads and compares them, for the
// administrator's rules and for other users, too.

const (
	// filePatience is how long a user's file system may take to answer.
	filePatience = 250 * time.Millisecond
	// A user's own rules may take so much time to be compared at once, and such a part of
	// all time; more, and they are not compared for a while.
	mostRuleDebt  = 500 * time.Millisecond
	ruleTimeShare = 20 // 1/20
)

// within calls f, which looks at a user's files, and reports whether it was done in time.
// One who does not answer is not asked again before the last answer has come; what f
// writes may not be read then.
func (r *ruleBook) within(uid uint32, f func()) bool {
	if former := r.slow[uid]; former != nil {
		select {
		case <-former:
			delete(r.slow, uid)
		default:
			return false
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(filePatience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		r.slow[uid] = done
		return false
	}
}

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
