// Command mutate puts faults into a copy of the last commit, one at a time, and reports whether the
// tests of `make test` find each: first the test that is expected to, with nothing beside it, then, if
// that passes, all of them. It writes each result as soon as it is known, so that it can
// be stopped and goes on where it was. Its exit code is 1 if a fault was not found.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// result is what became of a mutation.
type result struct {
	Name    string `json:"name"`
	Found   bool   `json:"found"`
	By      string `json:"by"` // the first test that failed
	Seconds int    `json:"seconds"`
}

func main() {
	state := flag.String("state", "bin/test/mutations.json", "`file` of the results so far")
	only := flag.String("only", ".", "`regexp` of the faults to try")
	flag.Parse()
	if err := run(*state, regexp.MustCompile(*only)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(state string, only *regexp.Regexp) error {
	known, err := load(state)
	if err != nil {
		return err
	}
	tree, err := os.MkdirTemp("", "netnice-mutations-")
	if err != nil {
		return err
	}
	defer func() {
		_ = command(".", "git", "worktree", "remove", "--force", tree).Run() // the next run prunes it
	}()
	if out, err := command(".", "git", "worktree", "add", "--detach", "--force", tree).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the code: %w\n%s", err, out)
	}
	for i, test := range []func(tree string, m mutation) *exec.Cmd{expected, all} {
		for _, m := range mutations {
			if _, done := known[m.name]; done || !only.MatchString(m.name) {
				continue
			}
			begin := time.Now()
			r, err := try(tree, m, test)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			r.Seconds = int(time.Since(begin).Seconds())
			fmt.Printf("%-5t %4d s  %-70s %s\n", r.Found, r.Seconds, m.name, r.By)
			if !r.Found && i == 0 {
				continue // all tests are asked later
			}
			known[m.name] = r
			if err := store(state, known); err != nil {
				return err
			}
		}
	}
	var escaped []string
	for _, m := range mutations {
		if r := known[m.name]; !r.Found && only.MatchString(m.name) {
			escaped = append(escaped, m.name)
		}
	}
	if len(escaped) > 0 {
		return fmt.Errorf("not found: %s", strings.Join(escaped, "; "))
	}
	return nil
}

// expected is the test that is expected to find a fault.
func expected(tree string, m mutation) *exec.Cmd {
	cmd := command(tree, "go", "test", "-count=1", "-run", m.run, m.pkg)
	cmd.Env = append(os.Environ(), "NETNICE_TEST_STAGE=test", "NETNICE_MUST_RUN_PRIVILEGED=1")
	return cmd
}

// all is all of `make test`.
func all(tree string, _ mutation) *exec.Cmd { return command(tree, "make", "test") }

// try puts a fault into the tree and runs tests.
func try(tree string, m mutation, test func(tree string, m mutation) *exec.Cmd) (result, error) {
	defer func() { _ = command(tree, "git", "checkout", "-q", "--", ".").Run() }() // the next apply fails if it did not
	path := filepath.Join(tree, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return result{}, err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return result{}, fmt.Errorf("the text to replace occurs %d times in %s", n, m.file)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
		return result{}, err
	}
	if strings.HasPrefix(m.file, "bpf/") {
		if out, err := command(tree, "make", "generate").CombinedOutput(); err != nil {
			return result{}, fmt.Errorf("compile: %w\n%s", err, out)
		}
	}
	if out, err := command(tree, "go", "build", "./...").CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	out, err := test(tree, m).CombinedOutput()
	if err != nil && firstFailed(out) == "" {
		return result{}, fmt.Errorf("no test failed, but %w:\n%s", err, out)
	}
	return result{Name: m.name, Found: err != nil, By: firstFailed(out)}, nil
}

// firstFailed returns the name of the first test that failed.
func firstFailed(out []byte) string {
	m := regexp.MustCompile(`(?:--- FAIL: |=== FAIL: )(.*?) \(`).FindSubmatch(out)
	if m == nil {
		return ""
	}
	return string(m[1])
}

func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}

func load(file string) (map[string]result, error) {
	known := map[string]result{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	return known, json.Unmarshal(text, &known)
}

func store(file string, known map[string]result) error {
	text, err := json.MarshalIndent(known, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
