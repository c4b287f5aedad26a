package demo

import (
	"fmt"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Verdict is a verdict on a figure.
type Verdict string

// The verdicts are: as promised; not quite; so far off that something is wrong.
const (
	Good Verdict = "ok"
	Near Verdict = "near"
	Off  Verdict = "far off"
)

// Figure is a measurement of the demo.
type Figure struct {
	Step    string  `json:"step"`
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"` // "bytes/s" (of IP), "ms", "ratio"
	Text    string  `json:"text"` // the value as text for the user
	Wanted  string  `json:"wanted"`
	Verdict Verdict `json:"verdict"`
}

// These bounds define a near and a good figure. Real machines that run the demo have other work, too.
const (
	goodPart = 0.01 // as a part of a limit
	offPart  = 0.05
)

// heldTo judges a rate, in IP bytes per second, by the limit that it must keep and use up.
func heldTo(limit, rate float64) Figure {
	f := Figure{
		What: "rate", Value: rate, Unit: "bytes/s", Text: exactRate(rate),
		Wanted: fmt.Sprintf("%s ± %.0f%%", formatRate(limit), goodPart*100),
	}
	f.Verdict = judge(math.Abs(rate/limit-1), goodPart, offPart)
	return f
}

// atLeast judges a rate that should be high: it is good from good on, and far off below off.
func atLeast(rate, good, off float64, wanted string) Figure {
	f := Figure{What: "rate", Value: rate, Unit: "bytes/s", Text: formatRate(rate), Wanted: wanted, Verdict: Near}
	switch {
	case rate >= good:
		f.Verdict = Good
	case rate < off:
		f.Verdict = Off
	}
	return f
}

// judge grades a deviation.
func judge(deviation, good, off float64) Verdict {
	switch {
	case deviation <= good:
		return Good
	case deviation <= off:
		return Near
	}
	return Off // also for a deviation that is not a number
}

// Table lists the figures with the promised value of each.
func Table(figures []Figure, s style) string {
	rows := [][]string{{"", "measured", "wanted", ""}}
	for _, f := range figures {
		rows = append(rows, []string{f.Step + ": " + f.What, f.Text, f.Wanted, string(f.Verdict)})
	}
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], ansi.StringWidth(cell))
		}
	}
	var b strings.Builder
	b.WriteByte('\n')
	for n, r := range rows {
		line := " "
		for i, cell := range r {
			padded := cell + strings.Repeat(" ", width[i]-ansi.StringWidth(cell))
			switch {
			case n == 0 || i == 2:
				padded = s.dim(padded)
			case i == 3 && Verdict(cell) == Good:
				padded = s.good(cell)
			case i == 3:
				padded = s.bad(cell)
			}
			line += padded + "  "
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
