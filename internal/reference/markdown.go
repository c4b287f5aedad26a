package reference

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cell returns text as a cell of a table in Markdown.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(strings.TrimSpace(text))
}

// prose returns plain text as Markdown shows it: no character of it is markup.
func prose(text string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "`", "\\`").Replace(text)
}

// code returns text as code; "" stays "".
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// table returns a table in Markdown.
func table(heads []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, text := range cells {
			b.WriteString(" " + cell(text) + " |")
		}
		b.WriteString("\n")
	}
	line(heads)
	b.WriteString("|" + strings.Repeat("---|", len(heads)) + "\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// block returns lines as a block of code.
func block(text string) string { return "```\n" + strings.Trim(text, "\n") + "\n```\n" }

// sentence returns text that begins with a capital and ends with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[n:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// helpText returns the text of a command's help as Markdown: adjacent lines at the margin are a paragraph, and
// indented lines are a block of code.
func helpText(text string) string {
	var out strings.Builder
	var lines []string
	isCode := false
	end := func() {
		switch {
		case len(lines) == 0:
		case isCode:
			out.WriteString(block(unindented(lines)) + "\n")
		default:
			out.WriteString(prose(strings.Join(lines, " ")) + "\n\n")
		}
		lines = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if line == "" {
			end()
			continue
		}
		if indented := strings.HasPrefix(line, " "); indented != isCode {
			end()
			isCode = indented
		}
		lines = append(lines, line)
	}
	end()
	return out.String()
}

// unindented returns lines without the spaces that all of them begin with.
func unindented(lines []string) string {
	least := -1
	for _, line := range lines {
		if n := len(line) - len(strings.TrimLeft(line, " ")); line != "" && (least < 0 || n < least) {
			least = n
		}
	}
	var out []string
	for _, line := range lines {
		out = append(out, line[min(max(least, 0), len(line)):])
	}
	return strings.Join(out, "\n")
}
