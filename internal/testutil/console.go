package testutil

import (
	"regexp"
	"strings"
)

// Block is a fenced block of a Markdown document.
type Block struct {
	Kind string // the word behind the fence, such as console or sh; "" if there is none
	Line int    // number of the first line of its text
	Text string
}

// Blocks returns the fenced blocks of a Markdown document, and the lines outside of them.
func Blocks(markdown string) (blocks []Block, prose string) {
	var outside strings.Builder
	inside := false
	number := 0
	for line := range strings.Lines(markdown) {
		number++
		kind, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && !inside:
			blocks = append(blocks, Block{Kind: kind, Line: number + 1})
			inside = true
		case isFence:
			inside = false
		case inside:
			blocks[len(blocks)-1].Text += line
		default:
			outside.WriteString(line)
		}
	}
	return blocks, outside.String()
}

// Command is a command of a console block, and the output that the document shows below it.
type Command struct {
	Root   bool   // it has the prompt of root
	Text   string // lines after the first one stand behind the prompt "> "
	Line   int    // number of its first line in the document
	Output string
	After  int // number of the line behind its output
}

// Commands returns the commands of a console block: "$ " stands before a user's command, and "# " before one of root.
func Commands(b Block) (list []Command) {
	number := b.Line - 1
	for line := range strings.Lines(b.Text) {
		number++
		text, isUser := strings.CutPrefix(line, "$ ")
		asRoot, isRoot := strings.CutPrefix(line, "# ")
		if isRoot {
			text = asRoot
		}
		if isUser || isRoot {
			list = append(list, Command{Root: isRoot, Text: strings.TrimRight(text, "\n"), Line: number, After: number + 1})
			continue
		}
		if len(list) == 0 {
			list = append(list, Command{Line: number}) // output without a command, which no test finds in order
		}
		last := &list[len(list)-1]
		last.After = number + 1
		if more, isMore := strings.CutPrefix(line, "> "); isMore && last.Output == "" {
			last.Text += "\n" + strings.TrimRight(more, "\n")
			continue
		}
		last.Output += line
	}
	return list
}

var (
	aUnit   = `(?:[kKMGT]?(?:B|bit)(?:/s)?|ns|us|µs|ms|s|min|h)`
	aFigure = regexp.MustCompile(`[0-9]+(?:[.:,][0-9]+)*(?:(?:ns|us|µs|ms|s|m|h)(?:[0-9]+(?:ns|us|µs|ms|s|m|h))*\b)?(?: ` + aUnit + `)?(?:\b|$)`)
	aDate   = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]+`)
	plural  = regexp.MustCompile(`\bN ([a-z]+[a-rt-z])s\b`)
	noValue = regexp.MustCompile(`(^| )-($| )`)
	spaces  = regexp.MustCompile(`[ \t]+`)
)

// Steady replaces what differs from run to run in the output of a command: a number with its unit, a date, and the dash
// that stands where there is no number, become N, and words behind them are singular. Several spaces become one.
func Steady(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(spaces.ReplaceAllString(line, " "), " \n")
		line = aDate.ReplaceAllString(line, "N")
		line = aFigure.ReplaceAllString(line, "N")
		line = plural.ReplaceAllString(line, "N $1")
		line = strings.ReplaceAll(line, "N processe", "N process") // of processes
		for noValue.MatchString(line) {
			line = noValue.ReplaceAllString(line, "${1}N${2}")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
