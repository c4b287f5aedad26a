package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	wherePage = "../../docs/internals/where-do-i-find.md"
	whereRows = 36
	lifePages = "../../docs/internals/life-of-*.md"
	lifeLines = 60
)

// A function is named in code with parentheses: `Carry()`, a method with its type: `Daemon.Set()`.
var namedFunction = regexp.MustCompile("`(?:([A-Za-z]\\w*)\\.)?([A-Za-z]\\w*)\\(\\)`")

// defines reports whether the text of a file defines a function, or a method of a type.
func defines(file, text, of, name string) bool {
	pattern := `(?m)^(?:[a-z_][\w \t*]*[ *]|int BPF_PROG\()` + name + `[(,]` // C
	switch {
	case !strings.HasSuffix(file, ".go"):
	case of != "":
		pattern = `(?m)^func \((?:\w+ )?\*?` + of + `(?:\[\w+\])?\) ` + name + `[(\[]`
	default:
		pattern = `(?m)^func ` + name + `[(\[]`
	}
	return regexp.MustCompile(pattern).MatchString(text)
}

// functionsMissing returns what is wrong with the files and functions that a step or a row of a table names: each
// file is there, and each function is defined in one of them.
func functionsMissing(root, step string) (problems []string) {
	files := stepFile.FindAllStringSubmatch(step, -1)
	functions := namedFunction.FindAllStringSubmatch(step, -1)
	if len(files) == 0 || len(functions) == 0 {
		return []string{"it names no file, or no function"}
	}
	texts := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file[1])))
		if err != nil {
			problems = append(problems, err.Error())
		}
		texts[file[1]] = string(text)
	}
	used := make(map[string]bool)
	for _, f := range functions {
		found := false
		for file, text := range texts {
			if defines(file, text, f[1], f[2]) {
				found, used[file] = true, true
			}
		}
		if !found {
			problems = append(problems, fmt.Sprintf("%s is in none of its files", f[0]))
		}
	}
	for file := range texts {
		if !used[file] {
			problems = append(problems, file+" has none of its functions")
		}
	}
	return problems
}

func TestFunctionsMissing(t *testing.T) {
	for step, want := range map[string]int{
		"`internal/request/request.go` `Carry()`":                                         0,
		"`internal/daemon/set.go` `Daemon.Set()`, `bpf/pacing.h` `nn_transmit()`":         0,
		"`bpf/netnice.bpf.c` `nn_fork()`, `internal/desired/table.go` `Table.FindName()`": 0,
		"`internal/daemon/set.go` `Set()`":                                                2,
		"`bpf/pacing.h` `nn_path_walk()`":                                                 2, // it is called there, and defined elsewhere
		"`bpf/paced.h` `nn_transmit()`":                                                   3,
		"`bpf/pacing.h`":                                                                  1,
	} {
		if got := functionsMissing("../..", step); len(got) != want {
			t.Errorf("%s: %q", step, got)
		}
	}
}

// The table of questions has its rows, and each names files and functions that are there.
func TestWhereDoIFind(t *testing.T) {
	text, err := os.ReadFile(wherePage)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.HasSuffix(strings.TrimSpace(cells[0]), "?") {
			continue
		}
		rows++
		for _, problem := range functionsMissing("../..", line) {
			t.Errorf("%s: %s", strings.TrimSpace(cells[0]), problem)
		}
	}
	if rows != whereRows {
		t.Errorf("the table has %d rows, not %d", rows, whereRows)
	}
}

// The pages that follow a chunk, a datagram, a received packet, a limit and a restart are short, have a drawing, and
// name files and functions that are there, in each step.
func TestLifePages(t *testing.T) {
	pages, err := filepath.Glob(lifePages)
	if err != nil || len(pages) != 5 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n") - strings.Count(string(text), "<!-- "); lines > lifeLines {
			t.Errorf("%s has %d lines, at most %d", page, lines, lifeLines)
		}
		if strings.Count(string(text), "```mermaid\n") != 1 {
			t.Errorf("%s has not one drawing", page)
		}
		steps := aStep.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\n   ", " "), -1)
		if len(steps) < 5 {
			t.Errorf("%s has %d steps", page, len(steps))
		}
		for i, step := range steps {
			if step[1] != fmt.Sprint(i+1) {
				t.Errorf("%s: step %s is the %dth", page, step[1], i+1)
			}
			for _, problem := range functionsMissing("../..", step[2]) {
				t.Errorf("%s, step %s: %s", page, step[1], problem)
			}
		}
	}
}
