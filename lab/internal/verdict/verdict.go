// Package verdict judges the measurements of the experiments by criteria that are written down before: the papers'
// figures, or netnice's promises. It measures nothing.
package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Criterion is a requirement on some figures of an experiment.
type Criterion struct {
	Experiment string // the folder's name
	Papers     string // the contract's number of the experiment: E2
	What       string
	Paper      string  // the paper's figure, "" if it gives none
	Least      float64 // bounds of each value; math.Inf: none
	Most       float64
	// Because is the reason why the paper's figure is impossible here, with its evidence. Then a miss is no failure.
	Because string

	of func(figures gjson.Result) []float64
}

// Verdict is the result for a criterion.
type Verdict struct {
	Criterion
	Values []float64 // none: they were not measured
}

// Run tells when an experiment ran, and of which netnice.
type Run struct {
	Experiment string
	Time       time.Time
	Netnice    string // its release
	Load       string // the machine's load average of the minute before
}

// RunOf reads it from the file that an experiment has written.
func RunOf(experiment string, file []byte) Run {
	return Run{
		experiment, gjson.GetBytes(file, "time").Time(), gjson.GetBytes(file, "machine.netnice").String(),
		gjson.GetBytes(file, "machine.load").String(),
	}
}

// Judge applies an experiment's criteria to the file that it has written.
func Judge(experiment string, file []byte) (list []Verdict) {
	figures := gjson.GetBytes(file, "figures")
	for _, c := range criteria() {
		if c.Experiment == experiment {
			list = append(list, Verdict{c, c.of(figures)})
		}
	}
	return list
}

// Pass says whether every value is within the bounds, and there is one.
func (v Verdict) Pass() bool {
	return len(v.Values) > 0 && !slices.ContainsFunc(v.Values, func(x float64) bool { return !(x >= v.Least && x <= v.Most) })
}

// Word returns the verdict in a word.
func (v Verdict) Word() string {
	switch {
	case len(v.Values) == 0:
		return "not measured"
	case v.Pass():
		return "pass"
	case v.Because != "":
		return "not reproduced"
	}
	return "miss"
}

// Ours returns the measured values.
func (v Verdict) Ours() string {
	if len(v.Values) == 0 {
		return "-"
	}
	low, high := figure(slices.Min(v.Values)), figure(slices.Max(v.Values))
	if low == high {
		return low
	}
	return low + " to " + high
}

// Wanted returns the bounds.
func (c Criterion) Wanted() string {
	switch {
	case math.IsInf(c.Most, 1):
		return "at least " + figure(c.Least)
	case math.IsInf(c.Least, -1):
		return "at most " + figure(c.Most)
	}
	return figure(c.Least) + " to " + figure(c.Most)
}

func (v Verdict) String() string {
	line := fmt.Sprintf("%-14s %s: %s, wanted %s", v.Word(), v.What, v.Ours(), v.Wanted())
	if v.Paper != "" {
		line += "; paper: " + v.Paper
	}
	if v.Word() == "not reproduced" {
		line += "; because " + v.Because
	}
	return line
}

func figure(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", x), "0"), ".")
}

// Table returns the verdicts as a table in Markdown.
func Table(list []Verdict) string {
	var b strings.Builder
	b.WriteString("| | figure | paper | wanted | ours | verdict |\n|---|---|---|---|---|---|\n")
	var because []string
	for _, v := range list {
		word := v.Word()
		if word == "not reproduced" {
			because = append(because, fmt.Sprintf("- %s, %s: %s.", v.Papers, v.What, v.Because))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", v.Papers, v.What, v.Paper, v.Wanted(), v.Ours(), word)
	}
	if len(because) > 0 {
		b.WriteString("\nNot reproduced, because:\n\n" + strings.Join(because, "\n") + "\n")
	}
	return b.String()
}

// Runs returns the runs as a table in Markdown.
func Runs(list []Run) string {
	var b strings.Builder
	b.WriteString("\n| experiment | ran | netnice | load before |\n|---|---|---|---|\n")
	for _, r := range list {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Experiment, r.Time.UTC().Format("2006-01-02 15:04"), r.Netnice, r.Load)
	}
	return b.String()
}

// Experiments returns the experiments with a criterion, in order.
func Experiments() (list []string) {
	for _, c := range criteria() {
		if !slices.Contains(list, c.Experiment) {
			list = append(list, c.Experiment)
		}
	}
	return list
}
