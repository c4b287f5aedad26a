// Package wrap breaks text for people into lines that fit a terminal. It decides where a line ends, and never changes,
// cuts or omits a word.
//
// A width is in cells of a terminal; 0 is any width.
package wrap

import (
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Unknown is the width for an output that is not a terminal, and for a terminal that does not report its width.
const Unknown = 80

// leastText is the width that text has beside an indent on the narrowest terminal.
const leastText = 20

// Hanging returns text behind a prefix. Further lines are indented by the width of the prefix. The last line ends with
// a newline, too.
func Hanging(prefix, text string, width int) string {
	indent := ansi.StringWidth(prefix)
	return lay(prefix, strings.Repeat(" ", indent), text, strings.Fields(text), width)
}

// lay writes words behind first in the first line, and behind rest in further lines. Text is the line that they make if
// all of them fit.
func lay(first, rest, text string, words []string, width int) string {
	if width == 0 || ansi.StringWidth(first+text) <= width {
		return first + text + "\n"
	}
	width = max(width, ansi.StringWidth(first)+leastText)
	var out strings.Builder
	line := first
	begun := false // true if the line contains a word
	for _, word := range words {
		if begun && ansi.StringWidth(line)+1+ansi.StringWidth(word) > width {
			out.WriteString(line + "\n")
			line, begun = rest, false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	return out.String() + line + "\n"
}

// aColumn matches a line of two columns: a word or phrase, and its explanation after two spaces or more.
var aColumn = regexp.MustCompile(`^( *\S.*?  +)(\S.*)$`)

// Line breaks one line that is laid out already. Further lines are indented to the line's second column, or, without
// one, deeper than the line.
func Line(line string, width int) string {
	if width == 0 || ansi.StringWidth(line) <= width {
		return line + "\n"
	}
	const most = 40 // if the first column is wider, its text goes below it
	if m := aColumn.FindStringSubmatch(line); m != nil && ansi.StringWidth(m[1]) <= most {
		return Hanging(m[1], m[2], width)
	}
	text := strings.TrimLeft(line, " ")
	lead := line[:len(line)-len(text)]
	return lay(lead, lead+"    ", text, strings.Fields(text), width)
}

// Usage breaks a line of a command's usage. It breaks no part in brackets that fits a line.
func Usage(line string, width int) string {
	text := strings.TrimLeft(line, " ")
	lead := line[:len(line)-len(text)]
	return lay(lead, lead+"    ", text, bracketed(text, width-len(lead)-4), width)
}

// bracketed divides text at spaces outside of square brackets, and inside those that are
// wider than most.
func bracketed(text string, most int) (words []string) {
	depth, from := 0, 0
	add := func(word string) {
		if ansi.StringWidth(word) > most {
			words = append(words, strings.Fields(word)...)
		} else if word != "" {
			words = append(words, word)
		}
	}
	for i, r := range text {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ' ' && depth == 0:
			add(text[from:i])
			from = i + 1
		}
	}
	add(text[from:])
	return words
}

// Text breaks paragraphs. Adjacent lines that begin at the margin are one paragraph, however they were broken before.
// Indented lines stay lines of their own.
func Text(text string, width int) string {
	var out strings.Builder
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			out.WriteString(Hanging("", strings.Join(paragraph, " "), width))
			paragraph = nil
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		out.WriteString(Line(line, width))
	}
	flush()
	return out.String()
}
