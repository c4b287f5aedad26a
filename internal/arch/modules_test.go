package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The product's module knows nothing of the lab's, and requires no module that only the lab needs. With go.work the
// compiler would not notice.
func TestProductNeedsNoLab(t *testing.T) {
	root, seen := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || path == filepath.Join(root, "lab") || path == filepath.Join(root, "bin")) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		seen++
		for _, imp := range file.Imports {
			if strings.HasPrefix(imp.Path.Value, `"`+module+`lab`) {
				t.Errorf("%s imports %s", path, imp.Path.Value)
			}
		}
		return nil
	})
	if err != nil || seen < 500 {
		t.Errorf("%d files were read: %v", seen, err)
	}
	product, lab := requirements(t, filepath.Join(root, "go.mod")), requirements(t, filepath.Join(root, "lab", "go.mod"))
	for _, name := range []string{"gonum.org/v1/plot", "gonum.org/v1/gonum", "github.com/tidwall/gjson"} {
		if product[name] != "" {
			t.Errorf("go.mod requires %s, which is the lab's", name)
		}
	}
	for name, version := range lab {
		if is := product[name]; is != "" && is != version {
			t.Errorf("the product requires %s %s, the lab %s: the lab would not measure what is built", name, is, version)
		}
	}
}

// requirements returns the modules that a go.mod requires, with their versions.
func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	if len(found) < 10 {
		t.Fatalf("%s has only %d requirements", path, len(found))
	}
	return found
}
