package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client/clienttest"
)

// prompt begins each line of the shells that these tests start.
const prompt = "ready>"

// interactive is a shell that finds netnice's completion.
type interactive struct {
	name, command string
	needs         string            // a program or a file that the shell needs
	files         map[string]string // below the home; a text without a newline is the name of a file of contrib/completions
	behindSudo    bool              // completes also commands behind sudo
}

// interactives returns the shells, each with the completion in the place for its users.
func interactives() []interactive {
	const bash = "bash --noprofile --rcfile .bashrc -i"
	return []interactive{
		{"bash", bash, "bash", map[string]string{
			".bashrc": "PS1='" + prompt + " '; . ~/netnice.bash; . ~/nlimit.bash\n", "netnice.bash": "netnice.bash", "nlimit.bash": "nlimit.bash",
		}, false},
		{"bash with bash-completion", bash, "/usr/share/bash-completion/bash_completion", map[string]string{
			".bashrc": "PS1='" + prompt + " '; . /usr/share/bash-completion/bash_completion\n",
			".local/share/bash-completion/completions/netnice": "netnice.bash",
			".local/share/bash-completion/completions/nlimit":  "nlimit.bash",
		}, true},
		{"zsh", "zsh -d -i", "zsh", map[string]string{
			".zshrc": "PS1='" + prompt + " '; fpath=(~ $fpath); autoload -U compinit; compinit -u -D\n", "_netnice": "_netnice", "_nlimit": "_nlimit",
		}, true},
		{"fish", "fish -i", "fish", map[string]string{
			".config/fish/config.fish":              "set fish_greeting; function fish_prompt; echo '" + prompt + " '; end\n",
			".config/fish/completions/netnice.fish": "netnice.fish",
			".config/fish/completions/nlimit.fish":  "nlimit.fish",
			// Without this folder fish reads all man pages, and makes completions of them.
			".local/share/fish/generated_completions/none.fish": "\n",
		}, true},
	}
}

// screen is a terminal at which a shell runs.
type screen struct {
	t   *testing.T
	dir string
	env []string
	// mark is the number in the screen's first line.
	mark int
}

// tabCase is a line that is typed, and the effect of TAB.
type tabCase struct {
	line  string
	list  []string // words that TAB offers; or
	then  string   // the line after TAB
	never string   // a word that TAB does not offer
}

// startScreen starts a shell at a terminal of tmux, with a tmux server that no other test uses.
func startScreen(t *testing.T, sh interactive, env []string) *screen {
	t.Helper()
	for _, needed := range []string{"tmux", sh.needs} {
		if _, err := exec.LookPath(needed); err != nil && !exists(needed) {
			t.Skipf("%s is missing (make deps-test)", needed)
		}
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")         // fish completes only behind programs that exist
	runtime := filepath.Join(dir, "runtime") // fish wants one that is its user's alone
	require.NoError(t, os.Mkdir(bin, 0o700))
	require.NoError(t, os.Mkdir(runtime, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o700))
	for name, text := range sh.files {
		if !strings.HasSuffix(text, "\n") {
			content, err := os.ReadFile(filepath.Join("../../contrib/completions", text))
			require.NoError(t, err)
			text = string(content)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := &screen{t: t, dir: dir, env: append(slices.Clone(env), "PATH="+bin+":"+os.Getenv("PATH"),
		"HOME="+dir, "ZDOTDIR="+dir, "XDG_CONFIG_HOME="+dir+"/.config", "XDG_DATA_HOME="+dir+"/.local/share", "XDG_RUNTIME_DIR="+runtime, "HISTFILE=/dev/null", "LC_ALL=C.UTF-8")}
	t.Cleanup(func() { _ = s.command("kill-server").Run() })
	// The time limit is for a test that is killed, and cleans up nothing.
	s.tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", dir, "exec timeout --foreground 120 "+sh.command)
	s.wait("the shell's prompt", func(text string) bool { return strings.TrimSpace(text) == prompt })
	return s
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *screen) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-L", "netnice", "-f", "/dev/null"}, args...)...)
	cmd.Env = append(slices.Clone(s.env), "TMUX_TMPDIR="+s.dir, "SHELL=/bin/sh")
	return cmd
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	require.NoError(s.t, err, "tmux %q: %s", args, out)
	return string(out)
}

// wait polls the screen until the function is returns true, for 10 s at most.
func (s *screen) wait(what string, is func(text string) bool) string {
	s.t.Helper()
	text := ""
	for range 200 {
		if text = s.tmux("capture-pane", "-p"); is(text) {
			return text
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("not within 10 s: %s. The screen has:\n%s", what, strings.TrimSpace(text))
	return ""
}

// empty makes the screen show a mark and, in the next line, a prompt.
func (s *screen) empty() {
	s.t.Helper()
	s.mark++
	s.tmux("send-keys", "C-u")
	s.tmux("send-keys", "-l", fmt.Sprintf("clear; echo mark''%d", s.mark))
	s.tmux("send-keys", "Enter")
	s.wait("an empty screen", func(text string) bool {
		return strings.Join(strings.Fields(text), " ") == fmt.Sprintf("mark%d %s", s.mark, prompt)
	})
}

// TAB offers a person at bash, zsh or fish the values that exist: processes by number and name, users, devices,
// subjects with limits, and rates with their units.
func TestTab(t *testing.T) {
	one, two := startProgram(t, "nncomplete"), startProgram(t, "nnsleeper")
	served := clienttest.New()
	served.Put(api.Node{ID: 1, Subject: api.Subject{Kind: api.KindPID, ID: one}, Name: "nncomplete"})
	served.Put(api.Node{ID: 2, Subject: api.Subject{Kind: api.KindUser, ID: "bob"}})
	served.Put(api.Node{ID: 3, Subject: api.Subject{Kind: api.KindUser, ID: "eve"}})
	env := append(serve(t, served), "NETNICE_TEST_PIDS="+one+" "+two, "NETNICE_TEST_USER=bob eve rolf root", "NETNICE_TEST_LINK=eth7 netnice0q wlan7")
	for _, sh := range interactives() {
		t.Run(sh.name, func(t *testing.T) {
			t.Parallel()
			s := startScreen(t, sh, env)
			cases := tabCases(one, two)
			if sh.behindSudo {
				cases = append(cases, tabCase{line: "sudo netnice link w", then: "sudo netnice link wlan7"})
			}
			for _, c := range cases {
				s.completes(c)
			}
		})
	}
}

func tabCases(one, two string) []tabCase {
	return []tabCase{
		{line: "netnice set --pid ", list: []string{one, "nncomplete", two, "nnsleeper"}},
		{line: "netnice set --user ro", list: []string{"rolf", "root"}, never: "bob"},
		{line: "netnice set --user e", then: "netnice set --user eve"},
		{line: "netnice unset ", list: []string{"pid:" + one, "nncomplete", "user:bob", "user:eve"}},
		{line: "netnice unset user:e", then: "netnice unset user:eve"},
		{line: "netnice set --up 10", list: []string{"10MB/s", "million bytes a second", "10mbit"}},
		{line: "netnice set --up 10M", then: "netnice set --up 10MB/s"},
		{line: "netnice set --up=10M", then: "netnice set --up=10MB/s"},
		{line: "netnice link ", list: []string{"eth7", "wlan7"}, never: "netnice0q"},
		{line: "netnice link w", then: "netnice link wlan7"},
		{line: "netnice set user:bob --up 10M", then: "netnice set user:bob --up 10MB/s"},
		{line: "netnice mon", then: "netnice monitor"},
		{line: "nlimit --user e", then: "nlimit --user eve"},
		{line: "nlimit -o 10M", then: "nlimit -o 10MB/s"},
	}
}

// completes types a line and TAB, and waits for the result of the case.
func (s *screen) completes(c tabCase) {
	s.t.Helper()
	keys := []string{"send-keys", "Tab"}
	if c.then == "" {
		keys = append(keys, "Tab", "Tab") // bash writes the common beginning first, and lists the words at the last TAB
	}
	s.empty()
	s.tmux("send-keys", "-l", c.line)
	s.tmux(keys...)
	text := s.wait(fmt.Sprintf("%q and TAB: %q", c.line, append(c.list, c.then)), func(text string) bool {
		if c.then != "" {
			return strings.Contains(text+"\n", "\n"+prompt+" "+c.then+"\n")
		}
		_, offered, _ := strings.Cut(text, strings.TrimSpace(c.line)) // tmux leaves out blanks at the end of lines
		return !slices.ContainsFunc(c.list, func(word string) bool { return !strings.Contains(offered, word) })
	})
	if c.never != "" {
		require.NotContains(s.t, text, c.never, c.line)
	}
}

// startProgram starts a program that does nothing until the test ends, and returns its process id.
func startProgram(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(name)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return strconv.Itoa(cmd.Process.Pid)
}

// serve starts a daemon, and returns the environment in which commands find it.
func serve(t *testing.T, served *clienttest.Daemon) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nn") // a socket's path has at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	server := &http.Server{Handler: served, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return append(os.Environ(), "NETNICE_SOCKET="+filepath.Join(dir, "s"), "NETNICE_TEST_DIR="+dir, "NETNICE_TEST_EUID=0", "GORACE=atexit_sleep_ms=0")
}
