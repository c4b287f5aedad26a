package arch

import (
	"os"
	"path/filepath"
	"regexp"
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
