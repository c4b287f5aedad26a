package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const stepsPage = "../../docs/internals/how-to-add.md"

// A file is named by its path from the root, in code. A target of make is a name after "make".
var (
	stepFile    = regexp.MustCompile("`([A-Za-z][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)*(?:\\.[a-z0-9]+|/[a-z]+)|Makefile)`")
	namedTarget = regexp.MustCompile("`make ([a-z-]+)`")
	aStep       = regexp.MustCompile(`(?m)^(\d+)\. (.*)$`)
)

// Each kind of addition has ten steps, each step names a file, and the files and the targets of make exist.
func TestSteps(t *testing.T) {
	text, err := os.ReadFile(stepsPage)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	if len(sections) != 5 {
		t.Errorf("%d kinds of additions", len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		steps := aStep.FindAllStringSubmatch(section, -1)
		if len(steps) != 10 {
			t.Errorf("%s: %d steps", title, len(steps))
		}
		for i, step := range steps {
			if step[1] != strconv.Itoa(i+1) {
				t.Errorf("%s: step %s is the %dth", title, step[1], i+1)
			}
			files := stepFile.FindAllStringSubmatch(step[2], -1)
			if len(files) == 0 && !strings.Contains(step[2], "in the same file") {
				t.Errorf("%s, step %d names no file", title, i+1)
			}
			for _, file := range files {
				if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(file[1]))); err != nil {
					t.Errorf("%s, step %d: %v", title, i+1, err)
				}
			}
		}
	}
	for _, target := range namedTarget.FindAllStringSubmatch(string(text), -1) {
		if !regexp.MustCompile(`(?m)^` + target[1] + `:.*## `).Match(makefile) {
			t.Errorf("there is no make %s", target[1])
		}
	}
}
