// Command mutate puts faults into a copy of the last commit, one at a time, and reports whether the tests of `make
// test` find each. It first runs the test that is expected to find the fault, with no other load. If that test
// passes, mutate runs all tests. A test that fails without a fault finds nothing. Therefore mutate first runs the
// expected tests without a fault, and all tests before it relies on them; they have to pass. It writes each result,
// also of these, as soon as it is known, so that it can be stopped and continues from there. After another commit it
// starts from the beginning. Its exit code is 1 if the tests miss a fault.
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

	"github.com/google/renameio/v2"
)

// results holds the results of one commit.
type results struct {
	Commit string            `json:"commit"`
	Passes map[string]bool   `json:"passes"` // the expected tests that pass without a fault
	Faults map[string]result `json:"faults"`
}

// result is the outcome of a mutation.
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
	commit, err := command(".", "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("find the last commit: %w", err)
	}
	known, err := load(state, strings.TrimSpace(string(commit)))
	if err != nil {
		return err
	}
	tree := filepath.Join(os.TempDir(), "netnice-mutations")
	remove := func() {
		// It may not exist, and then there is nothing to remove.
		_ = command(".", "git", "worktree", "remove", "--force", tree).Run()
		_ = os.RemoveAll(tree)
	}
	remove() // a run that was stopped leaves it
	defer remove()
	if out, err := command(".", "git", "worktree", "add", "--detach", "--force", tree, known.Commit).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the code: %w\n%s", err, out)
	}
	for i, test := range []func(tree string, m mutation) *exec.Cmd{expected, all} {
		for _, m := range mutations {
			if _, done := known.Faults[m.name]; done || !only.MatchString(m.name) {
				continue
			}
			if err := known.baseline(state, tree, m, i == 1); err != nil {
				return err
			}
			begin := time.Now()
			r, err := try(tree, m, test)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			r.Seconds = int(time.Since(begin).Seconds())
			fmt.Printf("%-5t %4d s  %-70s %s\n", r.Found, r.Seconds, m.name, r.By)
			if !r.Found && i == 0 {
				continue // the full test run follows later
			}
			known.Faults[m.name] = r
			if err := store(state, known); err != nil {
				return err
			}
		}
	}
	var survived []string
	for _, m := range mutations {
		if r := known.Faults[m.name]; !r.Found && only.MatchString(m.name) {
			survived = append(survived, m.name)
		}
	}
	if len(survived) > 0 {
		return fmt.Errorf("not found: %s", strings.Join(survived, "; "))
	}
	return nil
}

// baseline fails if the test that is expected to find m, or every test, fails without a fault too. It saves a
// success at once, because all tests together take as long as several faults.
func (known *results) baseline(state, tree string, m mutation, every bool) error {
	name, test := m.pkg+" "+m.run, expected
	if every {
		name, test = "make test", all
	}
	if known.Passes[name] {
		return nil
	}
	if out, err := test(tree, m).CombinedOutput(); err != nil {
		return fmt.Errorf("%s fails without a fault: %w\n%s", name, err, out)
	}
	known.Passes[name] = true
	return store(state, known)
}

// expected returns the test that is expected to find a fault.
func expected(tree string, m mutation) *exec.Cmd {
	cmd := command(tree, "go", "test", "-count=1", "-run", m.run, m.pkg)
	cmd.Env = append(os.Environ(), "NETNICE_TEST_STAGE=test", "NETNICE_MUST_RUN_PRIVILEGED=1")
	return cmd
}

// all returns the command for all tests of `make test`.
func all(tree string, _ mutation) *exec.Cmd { return command(tree, "make", "test") }

// try puts a fault into the tree and runs tests.
func try(tree string, m mutation, test func(tree string, m mutation) *exec.Cmd) (result, error) {
	defer func() { _ = command(tree, "git", "checkout", "-q", "--", ".").Run() }() // else the next fault does not apply
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
	if out, err := command(tree, "go", "build", "./...", "./lab/...").CombinedOutput(); err != nil {
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

// load reads the results of that commit.
func load(file, commit string) (*results, error) {
	anew := &results{Commit: commit, Passes: map[string]bool{}, Faults: map[string]result{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return anew, nil
	}
	if err != nil {
		return nil, err
	}
	known := results{Passes: map[string]bool{}, Faults: map[string]result{}}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("read %s (remove it to begin anew): %w", file, err)
	}
	if known.Commit != commit {
		return anew, nil
	}
	return &known, nil
}

func store(file string, known *results) error {
	text, err := json.MarshalIndent(known, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(file, text, 0o644) // complete, even if the process is stopped meanwhile
}
