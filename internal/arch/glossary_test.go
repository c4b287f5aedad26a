package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The glossary is short enough to be read at one time.
const leastTerms, mostTerms = 40, 60

// terms returns the terms of a glossary: the first cells of its tables' rows.
func terms(markdown string) (list []string) {
	inTable := false
	for line := range strings.Lines(markdown) {
		term, _, isRow := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		isRow = isRow && strings.HasPrefix(line, "|")
		term = strings.TrimSpace(term)
		if isRow && inTable && !strings.HasPrefix(term, "---") {
			list = append(list, term)
		}
		inTable = isRow
	}
	return list
}

// The glossary has at most mostTerms terms, and each once.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "GLOSSARY.md"))
	if err != nil {
		t.Fatal(err)
	}
	list := terms(string(text))
	if len(list) < leastTerms || len(list) > mostTerms {
		t.Errorf("the glossary has %d terms, not %d to %d: drop or merge those that a reader needs least", len(list), leastTerms, mostTerms)
	}
	slices.Sort(list)
	for i, term := range list[1:] {
		if term == list[i] {
			t.Errorf("the glossary has %s twice", term)
		}
	}
}

func TestTerms(t *testing.T) {
	const text = "# Title\n\n| term | meaning | not |\n|---|---|---|\n| limit | a | wish |\n| set, unset | b | |\n\n## More\n\n| term | meaning | not |\n|---|---|---|\n| path | c | |\n"
	if got := strings.Join(terms(text), "|"); got != "limit|set, unset|path" {
		t.Errorf("%s", got)
	}
}
