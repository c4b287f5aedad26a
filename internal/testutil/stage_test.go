package testutil

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What leaves `make test` says which tests have its behaviour there: they exist, and have not
// left it, too.
func TestWhatLeavesIsTestedMeanwhile(t *testing.T) {
	covers := map[string]string{} // of each test that has left
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
				stays[f.Name.Name] = true
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
	names := regexp.MustCompile(`\bTest\w+`)
	for test, text := range covers {
		for _, name := range names.FindAllString(text, -1) {
			if !stays[name] {
				t.Errorf("%s says that %s has its behaviour meanwhile, which is no test of `make test`", test, name)
			}
		}
	}
}

// coveredBy is what a test says to SkipUnlessAll, if it calls it.
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
