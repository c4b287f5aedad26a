package shell

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/units"
)

// rewriter is a variable of the environment that makes this test program rewrite a line of bash or zsh, as
// `netnice shell-line` does.
const rewriter = "NETNICE_TEST_SHELL_LINE"

func TestMain(m *testing.M) {
	name := os.Getenv(rewriter)
	if name == "" {
		os.Exit(m.Run())
	}
	line, err := Rewrite(os.Args[1], Dialects()[name])
	if err != nil {
		fmt.Fprintln(os.Stderr, "netnice: not run:", err)
		os.Exit(125)
	}
	fmt.Print(line)
	os.Exit(0)
}

// The test types generated commands of several lines at real shells. Each runs as it would without netnice, under the
// limits that it names, or is refused with a message.
func TestTypedInSeveralLines(t *testing.T) {
	commands := 1000
	if !testutil.All() {
		commands = 60
	}
	for _, c := range []struct {
		name string
		argv []string
		rc   string
	}{
		{"bash", []string{"--noprofile", "--norc", "-i"}, "netnice shell-init bash"},
		{"zsh", []string{"-f", "-i"}, "netnice shell-init zsh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.name); err != nil {
				t.Fatalf("%v (apt-get install %s)", err, c.name)
			}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
			sh := startShell(t, c.name, c.argv)
			refused := 0
			for range commands {
				cmd := g.command()
				got, said := sh.enter(cmd.text)
				slices.Sort(got)
				slices.Sort(cmd.want)
				if slices.Equal(got, cmd.want) {
					continue
				}
				refused++
				if len(got) > 0 || !cmd.limited || !strings.Contains(cmd.text, "\n") || c.name != "bash" || !strings.Contains(said, "netnice: not run") {
					t.Fatalf("typed:\n%s\nran  %q\nwant %q\nscreen %q", cmd.text, got, cmd.want, said)
				}
			}
			t.Logf("%d commands, %d of them refused", commands, refused)
			if refused > commands*2/3 {
				t.Errorf("%d of %d commands were refused", refused, commands)
			}
			history := sh.history()
			require.NotEmpty(t, history)
			if before, after, rewritten := strings.Cut(history, function); rewritten {
				t.Errorf("the history has not what was typed: %q", before[max(0, len(before)-80):]+function+after[:80])
			}
			require.Contains(t, history, "@5MB/s")
		})
	}
}

// The history has a line as it was typed, and a wrong rate is refused.
func TestTypedInOneLine(t *testing.T) {
	for name, argv := range map[string][]string{"bash": {"--noprofile", "--norc", "-i"}, "zsh": {"-f", "-i"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sh := startShell(t, name, argv)
			for line, want := range map[string]string{
				"show  a   @5MB/s":           "5MB/s|a",
				"show 'b  c'  @none | cat":   "none|b  c",
				"show bob@example.com @home": "-|bob@example.com|@home",
			} {
				got, _ := sh.enter(line)
				require.Equal(t, []string{want}, got)
				require.Contains(t, sh.history(), line)
			}
			for _, line := range []string{"show a @10mbps", "show a @10", "show a; show @1,5MB/s"} {
				got, said := sh.enter(line)
				require.Empty(t, got, line)
				require.Contains(t, said, "netnice: not run: rate", line)
			}
			require.NotContains(t, sh.history(), function)
		})
	}
}

// These are the shells' prompts.
const (
	primary   = "<first> "
	secondary = "<more> "
)

// shellAtTerminal is an interactive shell that reads the lines that a test types. Its commands report into a file.
type shellAtTerminal struct {
	t       *testing.T
	tty     *os.File
	reports string
	read    int // the number of bytes of the reports that were read
	n       int
	mu      sync.Mutex
	screen  bytes.Buffer
}

func startShell(t *testing.T, name string, argv []string) *shellAtTerminal {
	dir := t.TempDir()
	sh := &shellAtTerminal{t: t, reports: filepath.Join(dir, "reports")}
	self, err := os.Executable()
	require.NoError(t, err)
	program := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	// The program show reports the limit under which it runs, and its arguments.
	program("show", `r=${LIMIT:--}; for a; do r="$r|$a"; done; printf '%s\0' "$r" >>`+sh.reports)
	program("netnice", `case $1 in
shell-line) GORACE=atexit_sleep_ms=0 `+rewriter+`=$2 exec `+self+` "$3" ;;
run) LIMIT=$3; export LIMIT; shift 4; exec "$@" ;;
*) LIMIT=$2; export LIMIT ;;
esac`)
	cmd := exec.Command(name, argv...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TERM=dumb", "HISTFILE=", "HOME="+dir,
		"PS1="+primary, "PS2="+secondary)
	sh.tty, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 1000})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			n, err := sh.tty.Read(buf)
			if err != nil {
				return
			}
			sh.mu.Lock()
			sh.screen.Write(buf[:n])
			sh.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = sh.tty.Close()
		<-ended
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "init"), []byte(Init(Dialects()[name])), 0o644))
	sh.prompted("its start", func(screen string) bool { return strings.HasSuffix(screen, primary) })
	sh.line("HISTSIZE=100000; unsetopt prompt_cr prompt_sp 2>/dev/null")
	sh.enter(". " + dir + "/init")
	return sh
}

// enter types a command and waits until the shell is at its prompt again. It returns the reports of the command, and
// the text of the screen meanwhile.
func (sh *shellAtTerminal) enter(text string) (reports []string, screen string) {
	for _, line := range strings.Split(text, "\n") {
		said := sh.line(line)
		if strings.Contains(said, "press Enter again") { // the whole command is in the editor
			said += sh.line("")
		}
		screen += said
	}
	sh.n++
	end := "end " + strconv.Itoa(sh.n)
	sh.line("\x15show " + end) // ^U: a refused line stays in the editor
	data, err := os.ReadFile(sh.reports)
	require.NoError(sh.t, err)
	found := strings.Split(strings.TrimSuffix(string(data[sh.read:]), "\x00"), "\x00")
	sh.read = len(data)
	i := slices.Index(found, "-|"+strings.ReplaceAll(end, " ", "|"))
	if i < 0 {
		sh.t.Fatalf("the shell did not come back from\n%s\nreported: %q\nscreen: %q", text, found, screen)
	}
	return slices.Delete(found, i, i+1), screen
}

// line types one line and waits until the shell prompts for another line, or has a line in its editor. It returns the
// text of the screen meanwhile.
func (sh *shellAtTerminal) line(text string) string {
	sh.mu.Lock()
	sh.screen.Reset()
	sh.mu.Unlock()
	_, err := sh.tty.WriteString(text + "\r")
	require.NoError(sh.t, err)
	return sh.prompted(text, func(screen string) bool {
		_, answer, _ := strings.Cut(screen, "\n")
		return strings.HasSuffix(answer, primary) || strings.HasSuffix(answer, secondary) ||
			strings.Contains(answer, "netnice: ") && strings.Contains(answer, primary)
	})
}

// prompted waits until the screen, without the marks of a paste, ends with a prompt for the next line, and the shell
// reads each key itself. While the kernel reads the keys, ^U is its own command. prompted returns the text of the
// screen. A line that is typed before a shell's first prompt would take that prompt for its answer.
func (sh *shellAtTerminal) prompted(after string, prompt func(screen string) bool) string {
	marks := strings.NewReplacer("\x1b[?2004h", "", "\x1b[?2004l", "")
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		sh.mu.Lock()
		screen := sh.screen.String()
		sh.mu.Unlock()
		switch {
		case prompt(marks.Replace(screen)) && sh.readsKeys():
			return screen
		case time.Since(start) > 20*time.Second:
			sh.t.Fatalf("the shell did not come back from %q, screen: %q", after, screen)
		}
	}
}

func (sh *shellAtTerminal) readsKeys() bool {
	modes, err := unix.IoctlGetTermios(int(sh.tty.Fd()), unix.TCGETS)
	require.NoError(sh.t, err)
	return modes.Lflag&unix.ICANON == 0
}

func (sh *shellAtTerminal) history() string {
	file := filepath.Join(filepath.Dir(sh.reports), "history")
	sh.enter("fc -ln 1 >" + file)
	data, err := os.ReadFile(file)
	require.NoError(sh.t, err)
	return string(data)
}

// typed is a command of several lines, and its expected reports.
type typed struct {
	text    string
	want    []string
	limited bool // a part of the command has a limit
}

type generator struct{ *rand.Rand }

func (g *generator) oneOf(texts ...string) string { return texts[g.IntN(len(texts))] }

// word is a word as it is typed, and as a program gets it.
func (g *generator) word() (text, value string) {
	switch g.IntN(10) {
	case 0:
		return "'x @5M y'", "x @5M y"
	case 1:
		return "\"fix\nthe mail of bob@example.com\"", "fix\nthe mail of bob@example.com"
	case 2:
		return "'one\n@7MB/s\nthree'", "one\n@7MB/s\nthree"
	case 3:
		return `\@3M`, "@3M"
	case 4:
		return "a\\\nb", "ab"
	case 5:
		return `"$(echo in)"`, "in"
	case 6:
		return "\"$(echo in\necho out @1M)\"", "in\nout @1M"
	case 7:
		return "bob@example.com", "bob@example.com"
	case 8:
		return "@home", "@home"
	default:
		text = g.oneOf("a", "b1", "--mail=c@d.example", "e=f")
		return text, text
	}
}

// simple is a command that reports, with a limit or without.
func (g *generator) simple() (text, report string) {
	text, report = "show", ""
	for range g.IntN(4) {
		w, value := g.word()
		text += g.oneOf(" ", "  ", " \\\n ") + w
		report += "|" + value
	}
	limit := "-"
	if g.IntN(3) == 0 {
		rate := g.oneOf("5MB/s", "10mbit", "256K")
		if _, err := units.ParseRate(rate); err != nil {
			panic(err)
		}
		limit = rate
		text += g.oneOf(" ", "  ", " \\\n") + "@" + rate
	}
	return text, limit + report
}

func (g *generator) command() typed {
	a, ra := g.simple()
	b, rb := g.simple()
	c := typed{want: []string{ra, rb}}
	switch g.IntN(8) {
	case 0:
		c.text = a
		c.want = []string{ra}
	case 1:
		c.text = a + g.oneOf("; ", " && ", " && \n", " | ", " |\n") + b
	case 2:
		c.text = "(\n" + a + "\n" + b + "\n)"
	case 3:
		c.text = "for i in 1 2\ndo\n" + a + "\n" + b + "; done"
		c.want = append(c.want, ra, rb)
	case 4:
		c.text = "if true; then\n" + a + "\nelse\n" + b + "\nfi"
		c.want = []string{ra}
	case 5:
		c.text = "{ " + a + "\n" + b + "\n} & wait"
	case 6:
		c.text = a + " <<E\nthe text of bob@example.com @9M\n'\nE"
		c.want = []string{ra}
	case 7:
		c.text = "f() {\n" + a + "\n}; f; " + b
	case 8:
		c.text = "while " + b + "; do\n" + a + "; break\ndone"
	}
	c.limited = !strings.HasPrefix(ra+"|", "-|") || !strings.HasPrefix(rb+"|", "-|")
	return c
}
