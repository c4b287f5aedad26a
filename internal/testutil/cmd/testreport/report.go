package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`.
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// test names a test of a package.
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimPrefix(t.pkg, "github.com/netnice/netnice/") + " " + t.name
}

// remeasured begins the line that a test logs when it measures a disturbed window once more.
const remeasured = "measured again: "

// notJudged begins the line that a test logs instead of failing: the machine disturbed a
// window that cannot be measured again.
const notJudged = "not judged: "

// report holds the totals of a stage.
type report struct {
	passed, failed, skipped, remeasured, notJudged int
	first, last                                    time.Time
	slowest                                        []timed  // longest first
	unwanted                                       []string // skipped without an allowed reason
	flaky                                          []test   // failed first, and passed at the second run
	failures                                       []test   // failed in the end
	matched                                        []string // lines with the requested text
}

type timed struct {
	test
	seconds float64
}

// allowed holds the reasons for which a test may be skipped where it could run.
var allowed = []string{
	"in make test-all; meanwhile: ",
	"boots another kernel: ",
	"boots a whole Debian under emulation: ",
	"only what NETNICE_TEST_",
	"this kernel has no ",
	"no systemd-analyze of release 250", // Ubuntu 22.04 cannot install it
}

// read sums up the output of `go test -json`, and keeps the lines that contain a text, if that is not "".
func read(in io.Reader, show string) (report, error) {
	var r report
	last := make(map[test]string) // last result of each
	failedOnce := make(map[test]bool)
	failedWithin := make(map[string]bool) // packages with a failed test, since their start
	output := make(map[test][]string)
	times := make(map[test]float64)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // output of a program
		}
		if !e.Time.IsZero() {
			if r.first.IsZero() {
				r.first = e.Time
			}
			r.last = e.Time
		}
		t := test{e.Package, e.Test}
		if e.Test == "" {
			switch {
			case e.Action == "start":
				delete(failedWithin, e.Package)
			case e.Action == "fail" && !failedWithin[e.Package]:
				// Its tests passed, but not the code around them; or there are none, because it does not compile. A
				// later pass of such a package without its tests is no second try.
				r.failed++
				r.failures = append(r.failures, t)
			}
			continue
		}
		switch e.Action {
		case "output":
			r.remeasured += strings.Count(e.Output, remeasured)
			r.notJudged += strings.Count(e.Output, notJudged)
			output[t] = append(output[t], e.Output)
			if show != "" && strings.Contains(e.Output, show) {
				r.matched = append(r.matched, t.name+": "+strings.TrimSpace(e.Output))
			}
		case "pass", "fail", "skip":
			last[t] = e.Action
			failedOnce[t] = failedOnce[t] || e.Action == "fail"
			failedWithin[t.pkg] = failedWithin[t.pkg] || e.Action == "fail"
			times[t] = max(times[t], e.Elapsed)
		}
	}
	for t, end := range last {
		switch end {
		case "pass":
			r.passed++
			if failedOnce[t] {
				r.flaky = append(r.flaky, t)
			}
		case "fail":
			r.failed++
			r.failures = append(r.failures, t)
		case "skip":
			r.skipped++
			said := strings.Join(output[t], "")
			if !slices.ContainsFunc(allowed, func(reason string) bool { return strings.Contains(said, reason) }) {
				r.unwanted = append(r.unwanted, fmt.Sprintf("%s: %s", t, strings.TrimSpace(said)))
			}
		}
		if !strings.Contains(t.name, "/") {
			r.slowest = append(r.slowest, timed{t, times[t]})
		}
	}
	slices.SortFunc(r.slowest, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	slices.SortFunc(r.flaky, func(a, b test) int { return cmp.Compare(a.String(), b.String()) })
	slices.SortFunc(r.failures, func(a, b test) int { return cmp.Compare(a.String(), b.String()) })
	slices.Sort(r.unwanted)
	return r, lines.Err()
}

// print writes the report; strict makes a skipped test a failure.
func (r report) print(w io.Writer, strict bool) (ok bool) {
	ok = true
	for _, line := range r.matched {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w, "ten slowest:")
	for _, t := range r.slowest[:min(10, len(r.slowest))] {
		fmt.Fprintf(w, "  %6.1f s  %s\n", t.seconds, t.test)
	}
	for _, t := range r.failures {
		fmt.Fprintf(w, "failed: %s\n", t)
		ok = false
	}
	for _, t := range r.flaky {
		fmt.Fprintf(w, "failed at first, to be mended in the next change: %s\n", t)
	}
	if strict {
		for _, t := range r.unwanted {
			fmt.Fprintf(w, "skipped, and must not be: %s\n", t)
			ok = false
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped, %d windows measured again and %d not judged, %.0f s\n",
		r.passed, r.failed, r.skipped, r.remeasured, r.notJudged, r.last.Sub(r.first).Seconds())
	return ok
}
