package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan   = regexp.MustCompile("`[^`\n]+`")
	namedFile  = regexp.MustCompile(`^[\w./-]*\w\.(?:go|h|c|sh|py|md)$`)
	betweenTwo = regexp.MustCompile("[`\\s,;()]+")
)

// filesNamed lists the files of the repository that a text names in backquotes.
func filesNamed(text string) (list []string) {
	for _, span := range codeSpan.FindAllString(text, -1) {
		for _, word := range betweenTwo.Split(span, -1) {
			if namedFile.MatchString(word) {
				list = append(list, word)
			}
		}
	}
	return list
}

func TestFilesNamed(t *testing.T) {
	const text = "A list (`daemon/list.go`, `bpf/a.h b.h`), `state.json`, `f.close()`, `*.go`, c.go, and `./run.sh -x`."
	if got := strings.Join(filesNamed(text), " "); got != "daemon/list.go bpf/a.h b.h ./run.sh" {
		t.Errorf("found %s", got)
	}
}

// Documents name files by the end of their path. Each is there, also where a decision tells of its time: the name was
// followed.
func TestNamedFilesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	ends := make(map[string]bool)
	var documents []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == ".git" || rel == ".cache" || rel == "bin"):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		inRoot := !strings.Contains(rel, "/") && rel != "README.md" // internal/cli has the tests of README.md
		if strings.HasSuffix(rel, ".md") && (inRoot || strings.HasPrefix(rel, "docs/")) {
			documents = append(documents, rel)
		}
		for end := rel; ; {
			ends[end] = true
			_, shorter, more := strings.Cut(end, "/")
			if !more {
				return nil
			}
			end = shorter
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) < 30 {
		t.Fatalf("found %d documents", len(documents))
	}
	for _, doc := range documents {
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range filesNamed(string(text)) {
			if !ends[strings.TrimPrefix(name, "./")] {
				t.Errorf("%s names %s, which is not there", doc, name)
			}
		}
	}
}
