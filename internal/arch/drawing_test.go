package arch

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var writeDrawing = flag.Bool("write-drawing", false, "write the drawing of the packages in ARCHITECTURE.md")

const (
	drawingBegin = "<!-- drawing of the packages: make drawing -->\n"
	drawingEnd   = "<!-- end of the drawing -->\n"
)

// imports returns which packages of the product import which, tests and what is for tests apart.
func imports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	root := filepath.Join("..", "..")
	of := make(map[string]map[string]bool)
	for _, folder := range []string{"api", "client", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			forTests := strings.HasSuffix(d.Name(), "test") || d.Name() == "testutil" || d.Name() == "e2e" || d.Name() == "testdata"
			if d.IsDir() && forTests {
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			if of[name] == nil {
				of[name] = make(map[string]bool)
			}
			for _, imp := range file.Imports {
				text, err := strconv.Unquote(imp.Path.Value)
				if err != nil {
					return err
				}
				if ours, ok := strings.CutPrefix(text, module); ok && !strings.HasPrefix(ours, "internal/testutil") {
					of[name][ours] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
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
