package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The index of decisions has a row for each page, with its number and its title.
func TestDecisionsIndex(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "decisions")
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "0*.md"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	heading := regexp.MustCompile(`^# (\d+)\. (.*)\n`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		m := heading.FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s has no number and title", page)
			continue
		}
		if row := "\n| " + m[1] + " | [" + m[2] + "](" + filepath.Base(page) + ") | "; !strings.Contains(string(index), row) {
			t.Errorf("the index has no row that begins with %s", row[1:])
		}
	}
}

// A page of which a later page has changed a part names that one in its first lines, as its row of the index does.
func TestSupersededDecisions(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "decisions")
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| \d+ \| \[[^\]]*\]\((0[\w-]*\.md)\) \| .* \| (?:in part )?by (.*) \|$`)
	link := regexp.MustCompile(`\]\(0[\w-]*\.md\)`)
	rows := row.FindAllStringSubmatch(string(index), -1)
	if len(rows) < 4 {
		t.Errorf("found %d pages that are superseded in part", len(rows))
	}
	for _, m := range rows {
		text, err := os.ReadFile(filepath.Join(folder, m[1]))
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ = bytes.Cut(text, []byte("\n\n"))
		first, _, _ := strings.Cut(string(text), "\n\n")
		for _, later := range link.FindAllString(m[2], -1) {
			if !strings.HasPrefix(first, "Superseded ") || !strings.Contains(first, later) {
				t.Errorf("the first paragraph of %s does not say that it is superseded by the page of the link [..%s", m[1], later)
			}
		}
	}
}

// mostParagraphWords is the length of a paragraph that a reader takes in at once.
const mostParagraphWords = 120

var listItem = regexp.MustCompile(`^\s*(?:[-*+]|\d+\.) `)

// paragraph is a paragraph of a page, or an item of a list: where it begins, and how many words it has.
type paragraph struct{ line, words int }

// paragraphs returns the paragraphs and the items of lists of a page. Headings, tables and blocks of code are none.
func paragraphs(text string) (list []paragraph) {
	inCode, open, number := false, false, 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		switch {
		case len(words) > 0 && strings.HasPrefix(words[0], "```"):
			inCode, open = !inCode, false
		case inCode:
		case len(words) == 0, strings.HasPrefix(words[0], "|"), strings.Trim(words[0], "#") == "":
			open = false
		case !open || listItem.MatchString(line):
			list, open = append(list, paragraph{number, len(words)}), true
		default:
			list[len(list)-1].words += len(words)
		}
	}
	return list
}

func TestParagraphs(t *testing.T) {
	const text = "# A title of five words\n\nOne two\nthree.\n\n- an item of\n  five\n- two\n  - three words\n\n  1. inside\n" +
		"| a | table |\n|---|---|\n```\ncode, and no text\n\nmore\n```\nFour - after the code\n"
	want := []paragraph{{3, 3}, {6, 5}, {8, 2}, {9, 3}, {11, 2}, {19, 5}}
	if got := paragraphs(text); !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// The paragraphs of decisions are short.
func TestDecisionParagraphs(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "decisions", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		list := paragraphs(string(text))
		all += len(list)
		for _, p := range list {
			if p.words > mostParagraphWords {
				t.Errorf("%s:%d: a paragraph of %d words, at most %d: divide it, or put its figures in a table", page, p.line, p.words, mostParagraphWords)
			}
		}
	}
	if all < 500 {
		t.Errorf("found %d paragraphs", all)
	}
}
