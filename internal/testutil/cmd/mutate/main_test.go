package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// toolThat puts a go and a make that exit with such a code before those of the machine in PATH.
func toolThat(t *testing.T, code string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go", "make"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit "+code+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// Each fault still has its place in the code.
func TestFaultsApply(t *testing.T) {
	for _, m := range mutations {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: the text to replace occurs %d times in %s", m.name, n, m.file)
		}
	}
}

// The results of tests without a fault survive a stop before the first fault is judged.
func TestRunsWithoutAFaultAreRemembered(t *testing.T) {
	state := filepath.Join(t.TempDir(), "bin", "mutations.json")
	known, err := load(state, "c0ffee")
	if err != nil {
		t.Fatal(err)
	}
	m := mutation{pkg: "./internal/x", run: "^TestX$"}
	toolThat(t, "1")
	if err := known.baseline(state, t.TempDir(), m, false); err == nil {
		t.Error("a test that fails without a fault finds nothing")
	}
	toolThat(t, "0")
	for _, every := range []bool{false, true} {
		if err := known.baseline(state, t.TempDir(), m, every); err != nil {
			t.Fatal(err)
		}
	}

	toolThat(t, "1") // the second run repeats no test
	if known, err = load(state, "c0ffee"); err != nil {
		t.Fatal(err)
	}
	for _, every := range []bool{false, true} {
		if err := known.baseline(state, t.TempDir(), m, every); err != nil {
			t.Errorf("it was run again: %v", err)
		}
	}
	if known, err = load(state, "another"); err != nil || len(known.Passes) > 0 {
		t.Errorf("after another commit %v, %v is known", known.Passes, err)
	}
}
