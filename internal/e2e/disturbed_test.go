package e2e

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// machineWith returns a log of four seconds of a machine: how busy all processors were in each second, and the
// pauses.
func machineWith(busy [4]float64, dropped uint64, pauses ...pause) *cpuLog {
	l := &cpuLog{at: []testbed.Instant{0}, seconds: []float64{0}, dropped: []uint64{0}, pauses: pauses}
	for i, part := range busy {
		l.at = append(l.at, testbed.Instant(0).Add(time.Duration(i+1)*time.Second))
		l.seconds = append(l.seconds, l.seconds[i]+part*float64(runtime.NumCPU()))
		l.dropped = append(l.dropped, 0)
	}
	l.dropped[len(l.dropped)-1] = dropped
	return l
}

// One definition of a disturbed span serves two decisions: to measure a window again, and not to judge a rate.
func TestDisturbed(t *testing.T) {
	second := func(n int) testbed.Instant { return testbed.Instant(0).Add(time.Duration(n) * time.Second) }
	still := func(n int, took time.Duration) pause { return pause{from: second(n), took: took} }
	for name, c := range map[string]struct {
		machine                *cpuLog
		stalled                time.Duration // the path
		disturbed, aftereffect bool
	}{
		"at rest":                      {machineWith([4]float64{0.1, 0.1, 0.1, 0.1}, 0), 0, false, false},
		"busy":                         {machineWith([4]float64{0.1, 0.1, 0.8, 0.7}, 0), 0, true, false},
		"a little less":                {machineWith([4]float64{0.1, 0.1, 0.7, 0.6}, 0), 0, false, false},
		"busy before":                  {machineWith([4]float64{0.1, 0.9, 0.1, 0.1}, 0), 0, false, true},
		"busy long before":             {machineWith([4]float64{0.9, 0.1, 0.1, 0.1}, 0), 0, false, false},
		"a pause":                      {machineWith([4]float64{}, 0, still(2, 20*time.Millisecond)), 0, true, false},
		"a pause too short for it":     {machineWith([4]float64{}, 0, still(2, 19*time.Millisecond)), 0, false, false},
		"a pause before":               {machineWith([4]float64{}, 0, still(1, 20*time.Millisecond)), 0, false, true},
		"the path stood still":         {machineWith([4]float64{}, 0), 20 * time.Millisecond, true, false},
		"the path stood still shortly": {machineWith([4]float64{}, 0), 19 * time.Millisecond, false, false},
		"packets were dropped":         {machineWith([4]float64{}, 1), 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := second(2), second(4)
			if got := c.machine.disturbance(from, to, c.stalled); (got != "") != c.disturbed {
				t.Errorf("disturbed: %q, want %v", got, c.disturbed)
			}
			if got := c.machine.excuse(from, to); (got != "") != (c.disturbed && c.stalled == 0) {
				t.Errorf("an excuse without a path: %q", got)
			}
			if got := c.machine.aftereffect(from, to); (got != "") != c.aftereffect {
				t.Errorf("an effect of before: %q, want %v", got, c.aftereffect)
			}
		})
	}
}

// A window is measured again for either reason. Only a disturbed window is not judged.
func TestVerdict(t *testing.T) {
	const length, stalled = time.Second, 100 * time.Millisecond
	slow := compare("a rate", 0.8, 1, 0.05)    // 0.95 - 2 * 0.1 would be enough
	slower := compare("a rate", 0.7, 1, 0.05)  // below that bound
	tooFast := compare("a rate", 1.1, 1, 0.05) // no disturbance excuses that
	vain := fmt.Errorf("it is sent in vain: %w", errors.New("nothing comes"))
	for name, c := range map[string]struct {
		err                    error
		disturbed, aftereffect string
		more                   bool
		want                   verdict
	}{
		"slow":                                 {slow, "", "", true, windowFails},
		"slow, disturbed":                      {slow, "busy", "", true, windowAgain},
		"slow, of before":                      {slow, "", "packets were dropped", true, windowAgain},
		"slow, disturbed, for the last time":   {slow, "busy", "", false, windowNotJudged},
		"slow, of before, for the last time":   {slow, "", "packets were dropped", false, windowFails},
		"slow, of both, for the last time":     {slow, "busy", "packets were dropped", false, windowNotJudged},
		"slower, disturbed, for the last time": {slower, "busy", "", false, windowFails},
		"too fast, disturbed":                  {tooFast, "busy", "packets were dropped", true, windowFails},
		"in vain, disturbed":                   {vain, "busy", "", true, windowAgain},
		"in vain, for the last time":           {vain, "busy", "", false, windowFails},
	} {
		if got := verdictOn(c.err, c.disturbed, c.aftereffect, c.more, stalled, length); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
