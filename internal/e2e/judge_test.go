package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// errTooFast is the error for a rate above its limit, which no disturbance excuses.
var errTooFast = errors.New("faster than its limit")

// compare returns an error if a rate is not at its limit; tolerance is relative.
func compare(what string, got, want, tolerance float64) error {
	switch {
	case got > want*(1+tolerance):
		return fmt.Errorf("%s: %.0f IP bytes/s, want %.0f +- %.0f%%: %w", what, got, want, tolerance*100, errTooFast)
	case got < want*(1-tolerance):
		return &tooSlow{what, got, want, tolerance}
	}
	return nil
}

// tooSlow is the error for a rate below its limit.
type tooSlow struct {
	what                 string
	got, want, tolerance float64
}

func (e *tooSlow) Error() string {
	return fmt.Sprintf("%s: %.0f IP bytes/s, want %.0f +- %.0f%%", e.what, e.got, e.want, e.tolerance*100)
}

// excusedBy says whether a rate is too slow only because the emulated path, or a processor, stood still for a part
// of the time. TCP needs as long again to recover.
func (e *tooSlow) excusedBy(stalled, length time.Duration) bool {
	return e.got >= e.want*(1-e.tolerance-2*stalled.Seconds()/length.Seconds())
}

// aftermath is the time that TCP takes to recover after the machine stood still.
const aftermath = time.Second

// mostRemeasured is the largest number of windows of a test that are measured again.
const mostRemeasured = 2

// verdict is the decision on a window with a wrong rate.
type verdict int

const (
	windowFails     verdict = iota
	windowAgain             // the test measures again
	windowNotJudged         // its rate is too low only by as much as the machine stood still
)

// verdictOn decides on a window by its error and by the disturbance in it. It also regards an aftereffect of an
// earlier disturbance. more says whether the test may measure again. If not, only a disturbed window is excused.
func verdictOn(err error, disturbed, aftereffect string, more bool, stalled, length time.Duration) verdict {
	var slow *tooSlow
	switch {
	case errors.Is(err, errTooFast):
		return windowFails
	case more && disturbed+aftereffect != "":
		return windowAgain
	case disturbed != "" && errors.As(err, &slow) && slow.excusedBy(stalled, length):
		return windowNotJudged
	}
	return windowFails
}

// judge measures a window. The window begins when a command that returned at `after` has to be in force. An error of
// measure other than errTooFast has the window measured again if the machine was disturbed in it or just before. The
// last window may be too slow by as much as the machine stood still; it is then logged as not judged. Every other error
// fails the test, and so does measure itself by t.Errorf, also in a window that is measured again.
func (f *field) judge(after testbed.Instant, length time.Duration, measure func(from, to testbed.Instant) error) {
	f.t.Helper()
	for {
		resume := f.holdOffDaemonStarts()
		from := after.Add(settle)
		if f.distant() {
			from = max(from, testbed.Now())
		}
		from = max(from, f.disturbed) // several windows may judge one command
		to := from.Add(length)
		before := f.relayStalled()
		err := func() error {
			defer resume() // also for a test that ends in measure
			return measure(from, to)
		}()
		if err == nil {
			return
		}
		path := f.relayStalled() - before
		disturbed, aftereffect := cpus.disturbance(from, to, path), cpus.aftereffect(from, to)
		stalled := max(path, cpus.paused(from.Add(-aftermath), to))
		switch verdictOn(err, disturbed, aftereffect, f.remeasured < mostRemeasured, stalled, length) {
		case windowNotJudged:
			f.t.Logf("not judged: %v, but %s", err, disturbed)
			return
		case windowFails:
			f.t.Errorf("%v (%s; CPUs %.0f%% busy)", err, cmp.Or(disturbed, aftereffect), 100*cpus.busy(from, to))
			f.explain(after, to)
			return
		case windowAgain:
			f.remeasured++
			f.t.Logf("measured again: %v, but %s", err, cmp.Or(disturbed, aftereffect))
			after = testbed.Now().Add(min(stalled, 3*time.Second)) // see excusedBy
			f.disturbed = after
		}
	}
}
