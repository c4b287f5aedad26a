package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// productFiles calls f with each Go file of the product, and its folder. It leaves out tests, what is for tests, and
// generated files.
func productFiles(t *testing.T, mode parser.Mode, f func(folder string, files *token.FileSet, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, folder := range []string{"api", "client", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if strings.HasSuffix(d.Name(), "test") || d.Name() == "testutil" || d.Name() == "e2e" || d.Name() == "testdata" {
					return fs.SkipDir
				}
				return nil
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "_bpfel") {
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, mode)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			f(filepath.ToSlash(name), files, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
