package cli

import "charm.land/lipgloss/v2"

// Colours of a terminal, by number.
const (
	red    = "1"
	green  = "2"
	yellow = "3"
)

// hasColours reports whether the output is a terminal that has colours, and the user has not refused colours by
// NO_COLOR.
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

// width returns how wide lines of text may be, 0 = any width. Lines have any width if the output is no terminal,
// because the programs that read them look for phrases.
func (a *App) width() int {
	width, _ := a.System.Terminal(a.Out)
	return width
}
