package cli

import "charm.land/lipgloss/v2"

// Colours of a terminal, by number.
const (
	red    = "1"
	green  = "2"
	yellow = "3"
)

// hasColours reports whether what is printed is read on a terminal that has colours, by
// somebody who wants them.
func (a *App) hasColours() bool {
	width, _ := a.System.Terminal(a.Out)
	return width > 0 && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
}

// paint colours a text of one line; it keeps its width.
func (a *App) paint(colour, text string) string {
	if text == "" || colour == "" || !a.hasColours() {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour)).Render(text)
}

// width is how wide lines of text may be: any on what is no terminal, where a program looks for phrases.
func (a *App) width() int {
	width, _ := a.System.Terminal(a.Out)
	return width
}
