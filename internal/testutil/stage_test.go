package testutil

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var writeTable = flag.Bool("write-table", false, "write "+testAllTable)

const (
	testAllTable = "../../docs/internals/test-all-only.md"
	tableBegins  = `# Tests of ` + "`make test-all`" + ` alone

Each row is a test that ` + "`make test`" + ` does not run, and what has its behaviour there. ` + "`go test ./internal/testutil -run TestWhatLeavesIsTestedMeanwhile -write-table`" + ` writes this table; the same test compares it.

| package | test | in ` + "`make test`" + ` |
|---|---|---|
`
)

// A test that `make test` skips names other tests with its behaviour. They exist, and `make test` does not skip
// them.
func TestWhatLeavesIsTestedMeanwhile(t *testing.T) {
	covers := map[string]string{} // key: a test that `make test` skips
	stays := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			if text, left := coveredBy(f); left {
				covers[path+" "+f.Name.Name] = text
			} else {
				stays[folderOf(path)+" "+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(covers) < 40 || len(stays) < 500 {
		t.Errorf("only %d tests that leave and %d that stay were found", len(covers), len(stays))
	}
	checkTestAllTable(t, covers)
	for test, text := range covers {
		path, _, _ := strings.Cut(test, " ")
		names := coveringTests(text, folderOf(path))
		if len(names) == 0 && !strings.HasPrefix(folderOf(path), "lab/") {
			t.Errorf("%s names no test that has its behaviour meanwhile", test)
		}
		for _, name := range names {
			if !stays[name] {
				t.Errorf("%s says that %s has its behaviour meanwhile, which is no test of `make test`", test, name)
			}
		}
	}
}

// folderOf returns the folder of a file of the module, such as internal/e2e.
func folderOf(path string) string {
	return filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../../"))
}

// coveringTests lists the tests that a text names, each with its folder. A folder in the text applies to the names that
// follow it; names before the first one are of the folder own.
func coveringTests(text, own string) (list []string) {
	folder := own
	for _, word := range regexp.MustCompile(`\b(internal|lab)/[\w/-]+|\bTest\w+`).FindAllString(text, -1) {
		if strings.HasPrefix(word, "Test") {
			list = append(list, folder+" "+word)
		} else {
			folder = word
		}
	}
	return list
}

func TestCoveringTests(t *testing.T) {
	got := coveringTests("TestA, TestB and internal/clock TestC, TestScripts/unreachable", "internal/e2e")
	want := []string{"internal/e2e TestA", "internal/e2e TestB", "internal/clock TestC", "internal/clock TestScripts"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// checkTestAllTable compares the table in the documents with covers, or writes it.
func checkTestAllTable(t *testing.T, covers map[string]string) {
	t.Helper()
	var rows []string
	for test, text := range covers {
		path, name, _ := strings.Cut(test, " ")
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", folderOf(path), name, text))
	}
	slices.Sort(rows)
	want := tableBegins + strings.Join(rows, "")
	if *writeTable {
		if err := os.WriteFile(testAllTable, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(testAllTable); err != nil || string(is) != want {
		t.Errorf("%s is out of date (%v): run this test with -write-table", testAllTable, err)
	}
}

// coveredBy returns the text that a test passes to SkipUnlessAll, if it calls it.
func coveredBy(f *ast.FuncDecl) (text string, called bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "SkipUnlessAll" {
			if literal, ok := call.Args[1].(*ast.BasicLit); ok {
				text, _ = strconv.Unquote(literal.Value)
				called = true
			}
		}
		return true
	})
	return text, called
}
