package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/lab/internal/verdict"
)

// childOf is in the environment of processes that TestRoles starts, so that one without a role runs no tests.
const childOf = "NETNICE_LAB_TEST_ROLES"

func TestMain(m *testing.M) {
	runRole()
	if os.Getenv(childOf) != "" {
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// Every folder of the lab with an experiment, a bench or a tool is a command, and the experiments are those that the
// verdicts judge.
func TestEachFolderIsACommand(t *testing.T) {
	var folders, names, ofPapers []string
	list, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range list {
		if entry.IsDir() && entry.Name() != "internal" && entry.Name() != "out" {
			folders = append(folders, entry.Name())
		}
	}
	for _, c := range slices.Concat(benches(), experiments(), tools()) {
		names = append(names, c.folder)
	}
	for _, c := range experiments() {
		ofPapers = append(ofPapers, c.folder)
	}
	require.Equal(t, folders, names)
	require.Equal(t, verdict.Experiments(), ofPapers)
}

func TestHelpListsCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []command
	}{{nil, append(experiments(), tools()...)}, {[]string{"--help"}, experiments()}, {[]string{"bench"}, benches()}} {
		var out, problems bytes.Buffer
		require.Zero(t, execute(c.args, &out, &problems))
		require.Empty(t, problems.String())
		for _, is := range c.want {
			require.Regexp(t, `(?m)^  `+strings.TrimPrefix(is.folder, "bench-")+` +`+is.claim[:20], out.String())
		}
	}
}

// A command has the folder's name in its messages, whatever name it was called by.
func TestCommandsHaveTheirFlags(t *testing.T) {
	for _, c := range slices.Concat(benches(), experiments(), tools()) {
		number, _, _ := strings.Cut(c.folder, "-")
		calls := [][]string{{c.folder, "-h"}, {number, "--help"}, {"help", c.folder}}
		if rest, ok := strings.CutPrefix(c.folder, "bench-"); ok {
			calls = [][]string{{"bench", rest, "-h"}, {"help", "bench", rest}}
		}
		for _, args := range calls {
			var out, problems bytes.Buffer
			execute(args, &out, &problems)
			require.Empty(t, out.String())
			require.True(t, strings.HasPrefix(problems.String(), "Usage of "+c.folder+":\n  -"), "%q: %s", args, &problems)
		}
	}
}

// The lab's commands in the documents, the comments and the Makefile exist.
func TestDocumentsNameCommands(t *testing.T) {
	named := regexp.MustCompile("(?:go run \\./lab|`lab|\\$\\(RUN_LAB\\)|\\./\\$\\(LAB\\)) ([a-z][\\w-]*)(?: ([a-z]\\w*))?")
	files := []string{"../Makefile", "../ARCHITECTURE.md", "../README.md", "../CONTRIBUTING.md", "README.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md", "*.go", "*/*.go"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, more...)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			args, folder := m[1:2], m[1]
			if m[1] == "bench" && m[2] != "" {
				args, folder = m[1:3], "bench-"+m[2]
			}
			var out, problems bytes.Buffer
			execute(append(slices.Clone(args), "-h"), &out, &problems)
			said := out.String() + problems.String()
			require.True(t, strings.HasPrefix(said, "Usage of "+folder) || m[1] == "bench" && m[2] == "", "%s: %q: %s", file, m[0], said)
			found++
		}
	}
	require.Greater(t, found, 40)
}

func TestExitCodes(t *testing.T) {
	for args, want := range map[string]int{
		"e02 -h": 0, "help e02": 0, "e02 -no-such-flag": 2, "e02 extra": 1, "bench egress -h": 2,
		"bench egress -rtt x": 2, "traffic -n 0": 2,
		"e2": 2, "bench": 0, "bench no-such": 2,
	} {
		var out, problems bytes.Buffer
		require.Equal(t, want, execute(strings.Fields(args), &out, &problems), args)
	}
}

// The program starts itself again for the programs of an experiment: such a process has its role before it reads its
// command line.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		args   []string
		env    string
		want   int
		prints string
	}{
		{args: []string{"netnice-delays"}},
		{args: []string{"netnice-datagrams"}},
		{args: []string{"netnice-crowd", "127.0.0.1:1", "many"}, want: 1, prints: "number of connections"},
		{args: []string{"lab"}, env: "NETNICE_LAB_LOAD=short:1"},
		{args: []string{"lab"}, env: "NETNICE_LAB_CALCULATING=nowhere 1 1", want: 1, prints: "not an ip:port"},
		{args: []string{"lab"}, want: 3},
	} {
		program, err := filepath.EvalSymlinks("/proc/self/exe")
		require.NoError(t, err)
		cmd := &exec.Cmd{Path: program, Args: c.args, Env: append(os.Environ(), childOf+"=1", c.env)}
		out, _ := cmd.CombinedOutput()
		require.Equal(t, c.want, cmd.ProcessState.ExitCode(), "%q %s: %s", c.args, c.env, out)
		require.Contains(t, string(out), c.prints)
	}
}
