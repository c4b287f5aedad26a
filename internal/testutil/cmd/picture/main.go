// Command picture draws the console blocks of a Markdown page as a terminal, into an SVG file. It owns the look of the
// picture. What the commands print is compared by internal/e2e TestGuide, which also writes it.
package main

import (
	"fmt"
	"html"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/netnice/netnice/internal/testutil"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: picture PAGE.md PICTURE.svg")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], []byte(drawPage(string(text))), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Sizes in pixels.
const (
	letterWidth, lineHeight = 8, 19
	margin, barHeight       = 16, 30
)

// terminalColumns is the width of the terminal in letters. Longer lines go on in the next one.
const terminalColumns = 110

// Seconds after which lines appear: what a command prints, the next command, and as much more for each line read.
const printsAfter, nextAfter, readsLine = 0.5, 1.2, 0.3

// line is a line of the terminal.
type line struct {
	prompt, text string
	at           float64 // seconds from the beginning
}

// drawPage returns the picture of a page. Its title is the page's first heading.
func drawPage(page string) string {
	heading, _, _ := strings.Cut(page, "\n")
	blocks, _ := testutil.Blocks(page)
	var lines []line
	now := nextAfter
	for _, b := range blocks {
		if b.Kind != "console" {
			continue
		}
		for _, c := range testutil.Commands(b) {
			if len(lines) > 0 {
				lines = append(lines, line{})
			}
			prompt := "$ "
			if c.Root {
				prompt = "# "
			}
			for text := range strings.SplitSeq(c.Text, "\n") {
				lines = append(lines, line{prompt, text, now})
				prompt = "> "
			}
			now += printsAfter
			for text := range strings.Lines(c.Output) {
				letters := []rune(strings.TrimRight(text, "\n"))
				for len(letters) > terminalColumns {
					lines = append(lines, line{"", string(letters[:terminalColumns]), now})
					letters = letters[terminalColumns:]
				}
				lines = append(lines, line{"", string(letters), now})
			}
			now += nextAfter + readsLine*float64(strings.Count(c.Output, "\n"))
		}
	}
	return draw(strings.TrimPrefix(heading, "# "), lines)
}

// draw returns the picture of lines. They appear one after the other and stay. Where the reader wants no motion, and
// where the style is ignored, all are there from the beginning.
func draw(title string, lines []line) string {
	columns := 0
	var said strings.Builder
	for _, l := range lines {
		columns = max(columns, utf8.RuneCountInString(l.prompt+l.text))
		fmt.Fprintf(&said, "%s%s\n", l.prompt, l.text)
	}
	width := columns*letterWidth + 2*margin
	height := barHeight + len(lines)*lineHeight + 2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s</desc>
<style>
text { font: 13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #c9d1d9; white-space: pre }
.bar { fill: #8b949e }
.prompt { fill: #7ee787 }
.command { fill: #ffffff; font-weight: bold }
@media (prefers-reduced-motion: no-preference) { .line { animation: appear 1ms both } }
@keyframes appear { from { opacity: 0 } }
</style>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#0d1117" stroke="#6e7681"/>
`, width, height, html.EscapeString(title), html.EscapeString(said.String()), width-1, height-1)
	for i, colour := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`+"\n", margin+4+i*18, barHeight/2+3, colour)
	}
	fmt.Fprintf(&b, `<text class="bar" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", width/2, barHeight/2+7, html.EscapeString(title))
	for i, l := range lines {
		if l.text == "" {
			continue
		}
		y := barHeight + margin + (i+1)*lineHeight - 5
		fmt.Fprintf(&b, `<g class="line" style="animation-delay: %.1fs">`, l.at)
		if l.prompt == "" {
			put(&b, "output", margin, y, l.text)
		} else {
			put(&b, "command", margin+put(&b, "prompt", margin, y, l.prompt), y, l.text)
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// put writes a text, each letter of it as wide as the others in any font, and returns its width.
func put(b *strings.Builder, class string, x, y int, text string) int {
	width := utf8.RuneCountInString(text) * letterWidth
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs" xml:space="preserve">%s</text>`, class, x, y, width, html.EscapeString(text))
	return width
}
