package demo

import "charm.land/lipgloss/v2"

// style colours parts of the picture; each function keeps the width of its text.
type style struct {
	bar, dim, bold, good, bad func(string) string
}

// styleFor returns colours for a terminal, and none otherwise.
func styleFor(terminal bool) style {
	if !terminal {
		same := func(s string) string { return s }
		return style{bar: same, dim: same, bold: same, good: same, bad: same}
	}
	render := func(s lipgloss.Style) func(string) string {
		return func(text string) string { return s.Render(text) }
	}
	colour := func(c string) lipgloss.Style { return lipgloss.NewStyle().Foreground(lipgloss.Color(c)) }
	return style{
		bar:  render(colour("6")),
		dim:  render(lipgloss.NewStyle().Faint(true)),
		bold: render(lipgloss.NewStyle().Bold(true)),
		good: render(colour("2")),
		bad:  render(colour("1").Bold(true)),
	}
}
