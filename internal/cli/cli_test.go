package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

// testApp is an App whose System and Parts nothing may call.
func testApp() (*App, *bytes.Buffer) {
	var out bytes.Buffer
	return &App{Out: &out, Err: &out, Getenv: func(string) string { return "" }, PinDir: DefaultPinDir, LogPath: DefaultLogPath}, &out
}

func TestEveryNodeIsABranchOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "n")
		nodes := make([]api.Node, n)
		for i := range nodes {
			nodes[i] = api.Node{
				ID:      uint32(rapid.IntRange(1, 12).Draw(t, "id")),     // also twice
				Parent:  uint32(rapid.IntRange(0, 13).Draw(t, "parent")), // also missing, itself, in a ring
				Subject: api.Subject{Kind: rapid.SampledFrom([]api.Kind{api.KindPID, api.KindUser, api.KindHost, "new"}).Draw(t, "kind"), ID: rapid.StringMatching("[0-9]{1,3}").Draw(t, "subject")},
			}
		}
		seen := map[*api.Node]bool{}
		for _, b := range branches(nodes, rapid.Bool().Draw(t, "unicode")) {
			require.False(t, seen[b.node])
			seen[b.node] = true
		}
		require.Len(t, seen, n)
	})
}

func TestBranchesOrder(t *testing.T) {
	pid := func(id, parent uint32, text string) api.Node {
		return api.Node{ID: id, Parent: parent, Subject: api.Subject{Kind: api.KindPID, ID: text}}
	}
	nodes := []api.Node{
		pid(5, 2, "1000"), pid(4, 2, "99"), pid(6, 5, "1001"), pid(7, 0, "5"),
		{ID: 2, Subject: api.Subject{Kind: api.KindUser, ID: "bob"}},
	}
	var got []string
	for _, b := range branches(nodes, false) {
		got = append(got, b.prefix+b.node.Subject.String())
	}
	require.Equal(t, []string{"user:bob", "|- pid:99", "`- pid:1000", "   `- pid:1001", "pid:5"}, got)
}

func TestTableKeepsToItsWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tb table
		n := rapid.IntRange(1, 6).Draw(t, "columns")
		for range n {
			tb.columns = append(tb.columns, column{
				title: rapid.StringMatching("[A-Z]{1,8}").Draw(t, "title"), right: rapid.Bool().Draw(t, "right"),
				drop: rapid.IntRange(0, 3).Draw(t, "drop"), elastic: rapid.Bool().Draw(t, "elastic"),
			})
		}
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			row := make([]string, n)
			for i := range row {
				row[i] = printable(rapid.OneOf(rapid.StringMatching("[a-z ]{0,30}"), rapid.StringN(0, 10, -1), rapid.StringMatching("[一-三]{0,9}")).Draw(t, "cell"))
			}
			tb.rows = append(tb.rows, row)
		}
		width := rapid.IntRange(1, 120).Draw(t, "width")
		lines := strings.Split(strings.TrimSuffix(tb.render(width), "\n"), "\n")
		require.Len(t, lines, len(tb.rows)+1)
		for _, line := range lines {
			require.LessOrEqual(t, ansi.StringWidth(line), width, "%q", line)
		}
	})
}

// The columns of ls -w stay where they are while figures change.
func TestColumnsOfListStandStill(t *testing.T) {
	app, _ := testApp()
	for _, app.units = range []units.System{units.Bytes, units.Bits} {
		titles := func(n uint64) string {
			u := api.Usage{Bytes: n, RateBytesPerSec: n, WaitingSockets: int(min(n, 1)), WaitingBytes: n, WaitNS: n}
			list := api.NodeList{Nodes: []api.Node{{
				ID: 1, Subject: api.Subject{Kind: api.KindHost}, Weight: 100, Up: u, Down: u,
				Limits: []api.Limit{{Direction: api.Total, BytesPerSec: 1e6, Enforced: true}},
			}}}
			line, _, _ := strings.Cut(app.tree(&list, 0), "\n")
			return line
		}
		for _, n := range []uint64{1, 125, 999, 9_990, 99_900_000, 999_000_000_000} {
			require.Equal(t, titles(0), titles(n), "with %d", n)
		}
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "a\nb\nc\n", cut("a\nb\nc\n", 0))
	require.Equal(t, "a\nb\nc\n", cut("a\nb\nc\n", 4))
	require.Equal(t, "a\n... and 2 more: netnice ls\n", cut("a\nb\nc\n", 3))
}

func TestPrintable(t *testing.T) {
	require.Equal(t, "a?[2Jb?é", printable("a\x1b[2Jb\né"))
}

func TestLastWords(t *testing.T) {
	for text, want := range map[string][2]string{
		"":                                    {"it said nothing", "look"},
		"level=INFO\npanic: x":                {"panic: x", "look"},
		"netnice: early\nnetnice: no bpffs":   {"no bpffs", "look"},
		"level=INFO\nnetnice: a\n  do b\n  c": {"a", "do b\nc"},
	} {
		message, hint := lastWords(text, "look")
		require.Equal(t, want, [2]string{message, hint}, text)
	}
	path := filepath.Join(t.TempDir(), "log")
	require.Empty(t, logged(path, 0))
	require.NoError(t, os.WriteFile(path, []byte("old\nnew\n"), 0o600))
	require.Equal(t, "new\n", logged(path, 4))
	require.Empty(t, logged(path, 8))
	require.Equal(t, "old\nnew\n", logged(path, 99), "another file was begun meanwhile")
}

func TestExplain(t *testing.T) {
	remote := &api.Error{Code: api.CodeDenied, Message: "no", Hint: "sudo"}
	message, hint, code := explain(fmt.Errorf("ask: %w", remote))
	require.Equal(t, []any{"no", "sudo", exitDenied}, []any{message, hint, code})
	message, hint, code = explain(&failure{message: "gone", code: 1, cause: remote})
	require.Equal(t, []any{"gone", "", 1}, []any{message, hint, code})
	for want, err := range map[int]error{
		exitFailed:    &api.Error{Code: api.CodeConflict, Message: "there is one"},
		exitUsage:     &api.Error{Code: api.CodeBadRequest, Message: "a rate of 0"},
		exitNoSubject: &api.Error{Code: api.CodeNoLimit, Message: "no limit"},
		exitDenied:    failWith(exitDenied, "sudo", "only root"),
		exitNoDaemon:  fmt.Errorf("ask: %w", client.ErrNoDaemon),
	} {
		_, _, code := explain(err)
		require.Equal(t, want, code, err.Error())
	}
	_, err := units.ParseRate("10mbps")
	_, _, code = explain(err)
	require.Equal(t, exitUsage, code)
	_, _, code = explain(errors.New("read x: input/output error"))
	require.Equal(t, exitFailed, code)
	message, _, _ = explain(errors.Join(errors.New("one"), errors.New("two")))
	require.Equal(t, "one; two", message)
}

func TestMachine(t *testing.T) {
	m := Machine{}
	require.True(t, m.Alive(os.Getpid()))
	require.False(t, m.Alive(maxPID))
	headless := exec.Command("python3", "-c", `
import ctypes, sys, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)  # the first thread ends
`, strconv.Itoa(syscall.SYS_EXIT))
	require.NoError(t, headless.Start())
	stat := fmt.Sprintf("/proc/%d/stat", headless.Process.Pid)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(stat)
		return err == nil && strings.Contains(string(text), ") Z ")
	}, 10*time.Second, time.Millisecond)
	require.True(t, m.Alive(headless.Process.Pid), "another thread runs")
	require.NoError(t, headless.Process.Kill())
	require.Eventually(t, func() bool { return !m.Alive(headless.Process.Pid) }, 10*time.Second, time.Millisecond)
	require.Error(t, headless.Wait())
	_, err := m.ProcessName(maxPID)
	require.ErrorIs(t, err, fs.ErrNotExist)
	name, err := m.ProcessName(os.Getpid())
	require.NoError(t, err)
	require.NotEmpty(t, name)
	pins, err := m.Pins(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	require.False(t, pins)
	width, height := m.Terminal(new(bytes.Buffer))
	require.Zero(t, width+height)
}

// eachCommand visits the commands that a user sees.
func eachCommand(root *cobra.Command, visit func(*cobra.Command)) {
	visit(root)
	for _, c := range root.Commands() {
		if !c.Hidden && c.Name() != "help" {
			eachCommand(c, visit)
		}
	}
}

// Every reading command has --json, and every writing command has --dry-run.
func TestFlagsOfEveryCommand(t *testing.T) {
	app, _ := testApp()
	want := map[string]string{
		"netnice": "json dry-run", "set": "json dry-run", "confirm": "json dry-run", "unset": "json dry-run", "fair": "json dry-run", "link": "json dry-run", "reserve": "json dry-run", "nlimit": "json dry-run", "power": "json dry-run", "adapt": "json dry-run", "system": "json dry-run",
		"exec": "",                                                                               // nothing may stand between it and the command
		"run":  "dry-run", "up": "dry-run", "down": "dry-run", "daemon": "", "metrics": "listen", // metrics prints Prometheus's format
		"rules": "", "check": "json", "list": "json", "test": "json", "reload": "json",
		"ls": "json", "show": "json", "why": "json", "monitor": "json", "status": "json", "doctor": "json", "demo": "json", "version": "json", "shell-init": "", "inetd": "", "probe": "json", // a text for shells; a server
	}
	eachCommand(app.root(), func(c *cobra.Command) {
		names, ok := want[c.Name()]
		require.True(t, ok, "is %s reading or writing?", c.Name())
		for _, name := range strings.Fields(names) {
			require.NotNil(t, c.Flags().Lookup(name), "%s --%s", c.Name(), name)
		}
		require.NotEmpty(t, c.Short)
	})
}

// The man page names every command and every flag.
func TestManPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/man/netnice.1")
	require.NoError(t, err)
	page := strings.ReplaceAll(string(text), `\-`, "-")
	app, _ := testApp()
	root := app.root()
	app.persistent(root)
	eachCommand(root, func(c *cobra.Command) {
		require.Regexp(t, regexp.MustCompile(`(?m)^\.BR? .*\b`+c.Name()+`\b`), page)
		check := func(f *pflag.Flag) {
			if !f.Hidden {
				require.Contains(t, page, "--"+f.Name, "of %s", c.Name())
			}
		}
		c.Flags().VisitAll(check)
		c.PersistentFlags().VisitAll(check)
	})
	for _, code := range []int{exitOK, exitFailed, exitUsage, exitNoSubject, exitDenied, exitNoDaemon, exitNotRun, exitCannotRun, exitNotFound} {
		require.Contains(t, page, fmt.Sprintf("\n%d|T{\n", code))
	}
}

// The man page of nlimit has the command's flags.
func TestNlimitManPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/man/nlimit.1")
	require.NoError(t, err)
	page := strings.ReplaceAll(string(text), `\-`, "-")
	app, _ := testApp()
	cmd := app.nlimit()
	app.persistent(cmd)
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) { require.Contains(t, page, "--"+f.Name) })
	}
}

// contrib/completions is what `netnice gen completions` writes.
func TestCompletionsAreGenerated(t *testing.T) {
	app, out := testApp()
	dir := t.TempDir()
	require.Zero(t, app.Run(t.Context(), []string{"netnice", "gen", "completions", dir}), out)
	for _, name := range []string{"netnice.bash", "_netnice", "netnice.fish", "nlimit.bash", "_nlimit", "nlimit.fish"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("../../contrib/completions", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run: go run ./cmd/netnice gen completions contrib/completions")
	}
}
