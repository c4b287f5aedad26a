package demo

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

const (
	partsShown = 5
	nameWidth  = 22
	textWidth  = 22 // behind a bar
)

// Frame draws the state for a terminal of that size; the result depends on nothing else. Its height is the same in
// every state of one demo, so the picture does not jump.
func Frame(s State, width, height int, st style) string {
	width = min(max(width, 60), 120)
	rowsPerDecade := 2
	if height < 24 {
		rowsPerDecade = 1
	}
	lines := []string{headline(s, width, st), ""}
	lines = append(lines, chart(s, width, rowsPerDecade, st)...)
	lines = append(lines, "")
	scene := s.Scenes[s.Scene]
	lines = append(lines, st.bold(fmt.Sprintf(" %d  %s", s.Scene+1, scene.Title)))
	command := ""
	if n := len(scene.Commands); n > 0 {
		command = "    # " + scene.Commands[n-1]
	}
	lines = append(lines, st.good(command))
	for i := range partsShown {
		line := ""
		if i < len(s.Parts) {
			line = partLine(s.Parts[i], width, st)
		}
		lines = append(lines, line)
	}
	lines = append(lines, lastFigure(s, st))
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, width, "")
	}
	return strings.Join(lines, "\n") + "\n"
}

func headline(s State, width int, st style) string {
	left := " netnice demo: what the receiver gets"
	right := fmt.Sprintf("%.0f of %.0f s ", s.Elapsed.Seconds(), s.Planned.Seconds())
	switch {
	case s.Done:
		right = "done "
	case s.Leaving:
		right = "cleaning up "
	}
	gap := max(width-ansi.StringWidth(left)-ansi.StringWidth(right), 1)
	return st.bold(left) + strings.Repeat(" ", gap) + st.dim(right)
}

func partLine(p Part, width int, st style) string {
	cells := width - 4 - nameWidth - 1 - textWidth
	b := bar(p.Fraction, cells)
	return fmt.Sprintf("    %-*s%s%s %s", nameWidth, p.Name, st.bar(b),
		strings.Repeat(" ", cells-ansi.StringWidth(b)), p.Text)
}

// lastFigure returns the newest result.
func lastFigure(s State, st style) string {
	if len(s.Figures) == 0 {
		return ""
	}
	f := s.Figures[len(s.Figures)-1]
	verdict := st.good(string(f.Verdict))
	if f.Verdict != Good {
		verdict = st.bad(string(f.Verdict))
	}
	return fmt.Sprintf("    %s %s, %s: ", st.dim(f.Step+": "+f.What), f.Text, st.dim("wanted "+f.Wanted)) + verdict
}
