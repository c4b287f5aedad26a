package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// optionAnswers holds the answers to a socket option, or to a limit requested by one, which are the same in every
// language. The format is SOCKET:WHAT:SIZE:VALUE, see examples/README.md.
var optionAnswers = [][2]string{
	{"tcp4:send:8:1000000", "1000000"},
	{"tcp6:send:8:1000000", "1000000"},
	{"udp4:send:8:1000000", "1000000"},
	{"udp6:send:8:1000000", "1000000"},
	{"tcp4:receive:8:1000000", "1000000"},
	{"tcp6:receive:8:1000000", "1000000"},
	{"udp4:receive:8:1000000", "1000000"},
	{"udp6:receive:8:1000000", "1000000"},
	{"tcp4:send:4:250000", "250000"},
	{"udp6:receive:4:250000", "250000"},
	{"tcp6:send:8:5000000000", "5000000000"}, // more than 32 bits
	{"tcp4:send:8:1", "1"},
	{"udp4:send:8:0", "0"}, // removed
	{"open4:send:8:700000", "700000"},
	{"open6:receive:8:700000", "700000"},
	{"accepted4:send:8:600000", "600000"}, // inherited from its listener
	{"accepted6:receive:8:600000", "600000"},
	{"tcp4:send:2:7", "EINVAL"},
	{"tcp6:receive:0:7", "EINVAL"},
	{"udp4:send:12:7", "EINVAL"},
	{"tcp4:send:8:-1", "EINVAL"},
	{"udp6:receive:4:-1", "EINVAL"},
	{"unix:send:8:1000000", "EOPNOTSUPP"}, // the kernel's own answer
	{"process:send:8:400000", "400000"},
	{"process:receive:8:400000", "400000"},
	{"user:total:8:900000", "900000"},
	{"init:send:8:1000000", "EPERM"},
	{"process:send:8:-1", "EINVAL"},
}

// Without netnice the kernel refuses unknown options.
var optionUnknown = []string{"tcp4:send:8:1000000", "tcp6:receive:4:5", "udp4:send:8:1000000", "udp6:receive:8:1", "process:send:8:400000", "user:total:8:0"}

// The test runs the examples, in five languages, without privileges.
func TestSocketOptionLanguages(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSocketOption, in Python")
	t.Parallel()
	spare := newUsers()
	s := stageInOwnCgroup(t)
	languages := examples(t)
	ask := func(language string, cases []string) map[string]string {
		t.Helper()
		x := s.script(options{uid: spare + 20}, append(languages[language], cases...)...)
		got := map[string]string{}
		for range cases {
			select {
			case line, ok := <-x.lines:
				name, answer, _ := strings.Cut(line, " ")
				if !ok {
					t.Fatalf("%s ended early:\n%s", language, x.wrong.String())
				}
				got[name] = answer
			case <-time.After(40 * time.Second):
				t.Fatalf("%s does not answer:\n%s", language, x.wrong.String())
			}
		}
		x.close()
		return got
	}
	unknown := func(when string) {
		t.Helper()
		for language := range languages {
			quiet := len(attached(t)) == 0
			got := ask(language, optionUnknown)
			// Another netnice on this machine, as of other tests, would answer.
			quiet = quiet && len(attached(t)) == 0
			for name, answer := range got {
				if answer != "ENOPROTOOPT" && quiet {
					t.Errorf("%s, %s, %s: %s, want ENOPROTOOPT", when, language, name, answer)
				}
			}
		}
	}
	s.daemon()
	for language := range languages {
		var cases []string
		for _, c := range optionAnswers {
			cases = append(cases, c[0])
		}
		got := ask(language, cases)
		for _, c := range optionAnswers {
			if got[c[0]] != c[1] {
				t.Errorf("%s, %s: %s, want %s", language, c[0], got[c[0]], c[1])
			}
		}
	}
	if left := s.list().Nodes; len(left) > 0 {
		t.Errorf("limits are left: %+v", left)
	}
	s.must("down")
	unknown("down")
}

// examples builds the examples; it returns their commands, by language.
func examples(t *testing.T) map[string][]string {
	t.Helper()
	dir, err := os.MkdirTemp(work, "examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "examples")
	tool := func(name, remedy string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("the examples need %s: %s (make test does so where apt-get can)", name, remedy)
		}
		return path
	}
	build := func(args ...string) {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	// Users other than root run the files.
	copied := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return to
	}
	cc := tool("cc", "apt-get install gcc libc6-dev")
	node := tool("node", "apt-get install nodejs libnode-dev")
	rustc := tool("rustc", "apt-get install rustc")
	build(cc, "-Wall", "-Werror", "-I", filepath.Join(root, "include"), "-o", filepath.Join(dir, "c"), filepath.Join(source, "c/rates.c"))
	build(cc, "-Wall", "-Werror", "-shared", "-fPIC", "-I/usr/include/node", "-o", filepath.Join(dir, "sockopt.node"), filepath.Join(source, "node/sockopt.c"))
	build(tool("go", "https://go.dev/dl"), "build", "-o", filepath.Join(dir, "go"), "./examples/go")
	build(rustc, "-o", filepath.Join(dir, "rust"), filepath.Join(source, "rust/rates.rs"))
	return map[string][]string{
		"C":      {filepath.Join(dir, "c")},
		"Python": {interpreter(t), copied("python/rates.py")},
		"Go":     {filepath.Join(dir, "go")},
		"Rust":   {filepath.Join(dir, "rust")},
		"Node":   {node, copied("node/rates.js")},
	}
}
