package cli

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// column of a table.
type column struct {
	title   string
	right   bool // aligned to the right, for numbers
	drop    int  // where space is short, columns with the highest number are left out first; 0 = never
	elastic bool // texts may be cut short
	least   int  // the least width, in cells
}

// table lays text out in columns, two spaces apart. Cells must be printable.
type table struct {
	columns []column
	rows    [][]string
}

// leastElastic is the least width of an elastic column, in cells of a terminal.
const leastElastic = 10

// render prints the table, no line wider than width (0 = any).
func (t table) render(width int) string {
	shown := make([]int, len(t.columns)) // indices of columns that are shown
	for i := range shown {
		shown[i] = i
	}
	wide := t.natural()
	if width > 0 {
		for total(shown, wide) > width {
			drop := t.dropIndex(shown)
			if drop < 0 {
				break
			}
			shown = append(shown[:drop:drop], shown[drop+1:]...)
		}
		for _, i := range slices.Backward(shown) { // the column of the subject is the last one to be cut
			if over := total(shown, wide) - width; over > 0 && t.columns[i].elastic {
				wide[i] = max(min(wide[i], leastElastic), wide[i]-over)
			}
		}
	}
	var b strings.Builder
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for k, i := range shown {
			if k > 0 {
				line.WriteString("  ")
			}
			line.WriteString(pad(row[i], wide[i], t.columns[i].right))
		}
		text := strings.TrimRight(line.String(), " ")
		if width > 0 {
			text = ansi.Truncate(text, width, "~")
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}

// natural returns the width that each column would have with enough space.
func (t table) natural() []int {
	wide := make([]int, len(t.columns))
	for i, c := range t.columns {
		wide[i] = max(c.least, ansi.StringWidth(c.title))
		for _, row := range t.rows {
			wide[i] = max(wide[i], ansi.StringWidth(row[i]))
		}
	}
	return wide
}

// dropIndex returns the index of the shown column that is left out next, -1 for none.
func (t table) dropIndex(shown []int) int {
	found, highest := -1, 0
	for k, i := range shown {
		if t.columns[i].drop > highest {
			found, highest = k, t.columns[i].drop
		}
	}
	return found
}

func total(shown, wide []int) int {
	sum := 2 * (len(shown) - 1)
	for _, i := range shown {
		sum += wide[i]
	}
	return sum
}

// pad makes text exactly width cells wide.
func pad(text string, width int, right bool) string {
	text = ansi.Truncate(text, width, "~")
	space := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if right {
		return space + text
	}
	return text + space
}
