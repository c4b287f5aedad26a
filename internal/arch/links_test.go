package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fenced      = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	spanOfCode  = regexp.MustCompile("`(?:[^`\n]|\n[^`\n])+`")
	aLink       = regexp.MustCompile(`\]\(\s*([^)\s]+)[^)]*\)`)
	aHeading    = regexp.MustCompile(`(?m)^#{1,6} +(.*?)[ #]*$`)
	linkAddress = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	elsewhere   = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// links returns the addresses of a document's links. Parts that are set as code have none.
func links(markdown string) (list []string) {
	text := spanOfCode.ReplaceAllString(fenced.ReplaceAllString(markdown, ""), "")
	for _, m := range aLink.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// anchor returns the name by which GitHub lets a link lead to a heading.
func anchor(heading string) string {
	text := strings.ToLower(linkAddress.ReplaceAllString(heading, "$1"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r):
			return r
		}
		return -1
	}, text)
}

// anchors returns the names of a document's headings. The second heading of the same name has -1 behind it.
func anchors(markdown string) (list []string) {
	used := make(map[string]int)
	for _, m := range aHeading.FindAllStringSubmatch(fenced.ReplaceAllString(markdown, ""), -1) {
		name := anchor(m[1])
		if n := used[name]; n > 0 {
			list = append(list, fmt.Sprintf("%s-%d", name, n))
		} else {
			list = append(list, name)
		}
		used[name]++
	}
	return list
}

// brokenLink returns what is wrong with a link of a document, "" if nothing is. Path is the document's, below the root.
func brokenLink(root, path, link string) string {
	file, name, hasName := strings.Cut(link, "#")
	switch {
	case elsewhere.MatchString(link):
		return ""
	case strings.HasPrefix(file, "/"):
		return "it is not relative"
	}
	target := filepath.Join(root, path)
	if file != "" {
		target = filepath.Join(root, filepath.Dir(path), filepath.FromSlash(file))
	}
	if _, err := os.Stat(target); err != nil {
		return "there is no such file"
	}
	if !hasName {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil || filepath.Ext(target) != ".md" {
		return "its file has no headings"
	}
	if names := anchors(string(text)); !slices.Contains(names, name) {
		return fmt.Sprintf("the headings there are %s", strings.Join(names, ", "))
	}
	return ""
}

// markdownFiles returns the documents of the repository, below the root.
func markdownFiles(t *testing.T, root string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == ".git" || rel == ".cache" || rel == "bin" || rel == filepath.Join("lab", "out")):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(rel) == ".md":
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Each link of a document leads to a file that is there, and to a heading that is in it. Links to other sites are not
// followed.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	documents, found, named := markdownFiles(t, root), 0, 0
	for _, path := range documents {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links(string(text)) {
			found++
			if strings.Contains(link, "#") {
				named++
			}
			if problem := brokenLink(root, path, link); problem != "" {
				t.Errorf("%s links to %s: %s", path, link, problem)
			}
		}
	}
	if len(documents) < 70 || found < 300 || named < 30 {
		t.Errorf("found %d documents, %d links, %d of them to headings", len(documents), found, named)
	}
}

func TestLinksOfADocument(t *testing.T) {
	const text = "See [one](a.md), `[no](b.md)` and [two](\nc.md#d-e \"title\").\n\n```sh\n[no](f.md)\n```\n![picture](g.svg)\n"
	if got := strings.Join(links(text), " "); got != "a.md c.md#d-e g.svg" {
		t.Errorf("links: %s", got)
	}
	const headings = "# One: `two_three`, *four*\n\n```\n# no\n```\n## Beside fq_codel, fq and CAKE\n## A [link](b.md) – for 5%\n### Same\n### Same ##\n#not one\n"
	const want = "one-two_three-four beside-fq_codel-fq-and-cake a-link--for-5 same same-1"
	if got := strings.Join(anchors(headings), " "); got != want {
		t.Errorf("anchors: %s", got)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.md": "# Here\n", "b.txt": "# Here\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, isBroken := range map[string]bool{
		"a.md": false, "a.md#here": false, "#here": false, "https://example.org/a#b": false, "b.txt": false, ".": false,
		"c.md": true, "a.md#there": true, "#there": true, "b.txt#here": true, "/a.md": true,
	} {
		if got := brokenLink(dir, "a.md", link); (got != "") != isBroken {
			t.Errorf("%s: %q", link, got)
		}
	}
}
