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

	"github.com/netnice/netnice/lab/internal/stat"
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
	Values []float64   // of the latest run; none: they were not measured
	Others [][]float64 // of other runs, the later ones first
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

// Judge applies an experiment's criteria to the files that its runs have written, in any order.
func Judge(experiment string, files ...[]byte) (list []Verdict) {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b []byte) int { return RunOf(experiment, b).Time.Compare(RunOf(experiment, a).Time) })
	for _, c := range criteria() {
		if c.Experiment != experiment {
			continue
		}
		v := Verdict{Criterion: c}
		for i, file := range files {
			values := c.of(gjson.GetBytes(file, "figures"))
			if i == 0 {
				v.Values = values
			} else {
				v.Others = append(v.Others, values)
			}
		}
		list = append(list, v)
	}
	return list
}

// measured returns the values of the runs that have some.
func (v Verdict) measured() (runs [][]float64) {
	for _, values := range append([][]float64{v.Values}, v.Others...) {
		if len(values) > 0 {
			runs = append(runs, values)
		}
	}
	return runs
}

// Pass says whether there is a value and the median of the runs is within the bounds. A run with several values counts
// by its worst. The median is then that of the distances from the bounds, because one run may be too low and the next
// too high.
func (v Verdict) Pass() bool {
	runs := v.measured()
	if len(runs) == 0 {
		return false
	}
	if single := slices.Concat(runs...); len(single) == len(runs) {
		return v.beyond(stat.Median(single)) <= 0
	}
	var worst []float64
	for _, values := range runs {
		far := math.Inf(-1)
		for _, x := range values {
			far = max(far, v.beyond(x))
		}
		worst = append(worst, far)
	}
	return stat.Median(worst) <= 0
}

// beyond returns how far a value is outside of the bounds, or less than 0 for how far it is inside.
func (c Criterion) beyond(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(1)
	}
	return max(c.Least-x, x-c.Most)
}

// Word returns the verdict in a word.
func (v Verdict) Word() string {
	switch {
	case len(v.measured()) == 0:
		return "not measured"
	case v.Pass():
		return "pass"
	case v.Because != "":
		return "not reproduced"
	}
	return "miss"
}

// Ours returns the values of the latest run.
func (v Verdict) Ours() string { return span(v.Values) }

// OtherRuns returns the values of the other runs.
func (v Verdict) OtherRuns() string {
	var list []string
	for _, values := range v.Others {
		list = append(list, span(values))
	}
	return strings.Join(list, "; ")
}

// span returns the least and the greatest of some values.
func span(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	low, high := figure(slices.Min(values)), figure(slices.Max(values))
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

// Table returns the verdicts as a table in Markdown. It has a column for other runs if there are any.
func Table(list []Verdict) string {
	var b strings.Builder
	others := slices.ContainsFunc(list, func(v Verdict) bool { return len(v.Others) > 0 })
	if others {
		b.WriteString("| | figure | paper | wanted | latest run | other runs | verdict of the median |\n|---|---|---|---|---|---|---|\n")
	} else {
		b.WriteString("| | figure | paper | wanted | ours | verdict |\n|---|---|---|---|---|---|\n")
	}
	var because []string
	for _, v := range list {
		word := v.Word()
		if word == "not reproduced" {
			because = append(because, fmt.Sprintf("- %s, %s: %s.", v.Papers, v.What, v.Because))
		}
		ours := v.Ours()
		if others {
			ours += " | " + v.OtherRuns()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", v.Papers, v.What, v.Paper, v.Wanted(), ours, word)
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
