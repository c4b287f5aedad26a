package arch

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeDrawing = flag.Bool("write-drawing", false, "write the drawings in ARCHITECTURE.md and in docs/internals")

const (
	drawingBegin = "<!-- drawing of the packages: make drawing -->\n"
	drawingEnd   = "<!-- end of the drawing -->\n"
)

// imports returns which packages of the product import which, tests and what is for tests apart.
func imports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	of := make(map[string]map[string]bool)
	productFiles(t, parser.ImportsOnly, func(folder string, _ *token.FileSet, file *ast.File) {
		if of[folder] == nil {
			of[folder] = make(map[string]bool)
		}
		for _, imp := range file.Imports {
			text := strings.Trim(imp.Path.Value, "\"`")
			if ours, ok := strings.CutPrefix(text, module); ok && !strings.HasPrefix(ours, "internal/testutil/") {
				of[folder][ours] = true
			}
		}
	})
	return of
}

// reaches reports whether a package imports another one by way of a third.
func reaches(of map[string]map[string]bool, from, to string) bool {
	for next := range of[from] {
		if next != to && (of[next][to] || reaches(of, next, to)) {
			return true
		}
	}
	return false
}

// drawing returns the graph of imports as text for Mermaid. An import that follows from others is left out.
func drawing(of map[string]map[string]bool) string {
	var b strings.Builder
	b.WriteString("```mermaid\ngraph TD\n")
	id := func(name string) string { return strings.NewReplacer("/", "_").Replace(name) }
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "  %s[%s]\n", id(name), strings.TrimPrefix(name, "internal/"))
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, to := range slices.Sorted(maps.Keys(of[name])) {
			if !reaches(of, name, to) {
				fmt.Fprintf(&b, "  %s --> %s\n", id(name), id(to))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

func TestDrawing(t *testing.T) {
	path := filepath.Join("..", "..", "ARCHITECTURE.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), drawingBegin)
	_, after, closed := strings.Cut(rest, drawingEnd)
	if !found || !closed {
		t.Fatalf("%s has no place for the drawing", path)
	}
	want := before + drawingBegin + drawing(imports(t)) + drawingEnd + after
	if want == string(text) {
		return
	}
	if !*writeDrawing {
		t.Fatalf("the drawing of the packages in %s is out of date: make drawing", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDrawingLeavesOutWhatFollows(t *testing.T) {
	got := drawing(map[string]map[string]bool{"a": {"b": true, "internal/c": true}, "b": {"internal/c": true}, "internal/c": {}})
	want := "```mermaid\ngraph TD\n  a[a]\n  b[b]\n  internal_c[c]\n  a --> b\n  b --> internal_c\n```\n"
	if got != want {
		t.Errorf("%s", got)
	}
}
