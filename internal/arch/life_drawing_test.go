package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page "The life of ..." has its drawing from its steps. Each step ends with a comment that says what it adds:
//
//	<!-- draw hook[egress hook]; program -> hook: a label; daemon .-> hook -->
//
// A part in [brackets] is a box, one in {braces} a question. An arrow is solid (->) or dotted (.->), and leads from one
// part to another. In a sequence diagram a part is a participant. The first comment of the page says which kind it is.

var (
	// lifeDrawing is the place of the drawing: kind, and the drawing itself.
	lifeDrawing = regexp.MustCompile(`(?s)<!-- (flowchart TD|sequenceDiagram) of the steps: make drawing -->\n(.*?)<!-- end of the drawing -->\n`)
	lifeMark    = regexp.MustCompile(`<!-- draw (.+?) -->`)
	lifePart    = regexp.MustCompile(`^(\w+)([\[{])([^\[\]{}"]+)[\]}]$`)
	lifeArrow   = regexp.MustCompile(`^(\w+) (\.?->) (\w+)(?:: ([^"]+))?$`)
)

type part struct {
	name, text string
	question   bool
	step       int // the step that has it
}

type arrow struct {
	from, to, text string
	dotted         bool
	step           int
}

// lifeParts reads the comments of a page's steps.
func lifeParts(page string) (parts map[string]part, order []string, arrows []arrow, err error) {
	parts = make(map[string]part)
	steps := aStep.FindAllStringSubmatch(strings.ReplaceAll(page, "\n   ", " "), -1)
	for i, step := range steps {
		marks := lifeMark.FindAllStringSubmatch(step[2], -1)
		if len(marks) != 1 {
			return nil, nil, nil, fmt.Errorf("step %d has %d parts of the drawing, not one", i+1, len(marks))
		}
		for item := range strings.SplitSeq(marks[0][1], "; ") {
			if m := lifePart.FindStringSubmatch(item); m != nil {
				if parts[m[1]].name != "" {
					return nil, nil, nil, fmt.Errorf("step %d: %s is in the drawing already", i+1, m[1])
				}
				parts[m[1]] = part{name: m[1], text: m[3], question: m[2] == "{", step: i + 1}
				order = append(order, m[1])
				continue
			}
			m := lifeArrow.FindStringSubmatch(item)
			if m == nil {
				return nil, nil, nil, fmt.Errorf("step %d: %q is no part of a drawing and no arrow", i+1, item)
			}
			arrows = append(arrows, arrow{from: m[1], to: m[3], text: m[4], dotted: m[2] == ".->", step: i + 1})
		}
	}
	used := make(map[string]bool)
	for _, a := range arrows {
		for _, end := range []string{a.from, a.to} {
			if parts[end].name == "" {
				return nil, nil, nil, fmt.Errorf("step %d: no step has %s", a.step, end)
			}
			used[end] = true
		}
	}
	for _, name := range order {
		if !used[name] {
			return nil, nil, nil, fmt.Errorf("step %d: no arrow leads to %s or from there", parts[name].step, name)
		}
	}
	return parts, order, arrows, nil
}

// lifeText returns the drawing of a page as text for Mermaid, with the steps' numbers.
func lifeText(kind, page string) (string, error) {
	parts, order, arrows, err := lifeParts(page)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "```mermaid\n%s\n", kind)
	if kind == "sequenceDiagram" {
		for _, name := range order {
			fmt.Fprintf(&b, "  participant %s as %s\n", name, parts[name].text)
		}
		for _, a := range arrows {
			line := "->>"
			if a.dotted {
				line = "-->>"
			}
			fmt.Fprintf(&b, "  %s%s%s: (%d) %s\n", a.from, line, a.to, a.step, a.text)
		}
		b.WriteString("```\n")
		return b.String(), nil
	}
	drawn := make(map[string]bool)
	// At its first arrow a part has its text.
	end := func(name string) string {
		if drawn[name] {
			return name
		}
		drawn[name] = true
		p := parts[name]
		if p.question {
			return fmt.Sprintf(`%s{"(%d) %s"}`, name, p.step, p.text)
		}
		return fmt.Sprintf(`%s["(%d) %s"]`, name, p.step, p.text)
	}
	for _, a := range arrows {
		line := "-->"
		if a.dotted {
			line = "-.->"
		}
		if a.text != "" {
			line += `|"` + numbered(a, parts) + `"|`
		}
		fmt.Fprintf(&b, "  %s %s %s\n", end(a.from), line, end(a.to))
	}
	b.WriteString("```\n")
	return b.String(), nil
}

// numbered returns the text of an arrow, with the number of its step where none of its ends has that number.
func numbered(a arrow, parts map[string]part) string {
	if parts[a.from].step == a.step || parts[a.to].step == a.step {
		return a.text
	}
	return fmt.Sprintf("(%d) %s", a.step, a.text)
}

// The drawings of these pages are those of their steps.
func TestLifeDrawings(t *testing.T) {
	pages, err := filepath.Glob(lifePages)
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		m := lifeDrawing.FindStringSubmatchIndex(string(text))
		if m == nil {
			t.Fatalf("%s has no place for the drawing", page)
		}
		want, err := lifeText(string(text[m[2]:m[3]]), string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		if string(text[m[4]:m[5]]) == want {
			continue
		}
		if !*writeDrawing {
			t.Errorf("the drawing in %s is not that of its steps: make drawing", page)
			continue
		}
		if err := os.WriteFile(page, []byte(string(text[:m[4]])+want+string(text[m[5]:])), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLifeText(t *testing.T) {
	const page = "1. A. `f()`\n   <!-- draw a[is it so]; b{is it?}; a -> b: at first -->\n2. B.\n   <!-- draw b .-> a: then -->\n"
	got, err := lifeText("flowchart TD", page)
	want := "```mermaid\nflowchart TD\n  a[\"(1) is it so\"] -->|\"at first\"| b{\"(1) is it?\"}\n  b -.->|\"(2) then\"| a\n```\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	got, err = lifeText("sequenceDiagram", page)
	want = "```mermaid\nsequenceDiagram\n  participant a as is it so\n  participant b as is it?\n  a->>b: (1) at first\n  b-->>a: (2) then\n```\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for page, want := range map[string]string{
		"1. A.\n":                                      "step 1 has 0 parts of the drawing, not one",
		"1. A.\n   <!-- draw a[b]; a -> c -->\n":       "step 1: no step has c",
		"1. A.\n   <!-- draw a[b] -->\n":               "step 1: no arrow leads to a or from there",
		"1. A.\n   <!-- draw a[b]; a[c]; a -> a -->\n": "step 1: a is in the drawing already",
		"1. A.\n   <!-- draw a = b -->\n":              `step 1: "a = b" is no part of a drawing and no arrow`,
	} {
		if _, err := lifeText("flowchart TD", page); err == nil || err.Error() != want {
			t.Errorf("%s: %v", page, err)
		}
	}
}
