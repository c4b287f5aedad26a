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

// terminal runs an interactive shell at a terminal, types lines, and prints the output between them.
const terminal = `
import pty, re, select
home, command, marker = sys.argv[1], sys.argv[2].split(), sys.argv[3]
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(HOME=home, ZDOTDIR=home, XDG_CONFIG_HOME=home, TERM="xterm", PATH=sys.argv[4] + ":" + os.environ["PATH"], HISTFILE="/dev/null")
    os.chdir(home)
    os.execvp(command[0], command)
seen = ""

def until(text, seconds=20):
    global seen
    end = time.monotonic() + seconds
    while text not in seen:
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            say("lost", repr(seen[-2000:]))
            sys.exit(1)
        data = os.read(fd, 65536).decode(errors="replace")
        if "\x1b[c" in data:  # the shell asks what terminal this is
            os.write(fd, b"\x1b[?62c")
        if "\x1b[6n" in data:
            os.write(fd, b"\x1b[1;1R")
        seen += data
    before, _, seen = seen.partition(text)
    return before

def enter(line):
    os.write(fd, line.encode() + b"\r")

enter(marker % 1)
until("mark-41")
for n, line in enumerate(iter(wait, "")):
    enter(line)
    time.sleep(0.3)
    enter(marker % (n + 2))
    out = until("mark-%d" % (n + 42))
    say("out", re.sub(r"\s+", " ", re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\x1b.", "", out)))
os.close(fd)
`

// A person types commands at real shells, which run under the limit in their last word. There are programs, aliases
// and functions, in pipelines, loops and the background, and a shell itself.
func TestShells(t *testing.T) {
	t.Parallel()
	for _, sh := range testutil.Subset([]struct {
		name, command, rc, marker string
		text                      string
	}{
		{
			"bash", "bash --noprofile --rcfile HOME/.bashrc -i", ".bashrc", "echo mark-$((40+%d))",
			`eval "$(netnice shell-init bash)"
alias show='sh -c "netnice; true"'
inside() { sh -c "netnice; true"; }
`,
		},
		{
			"zsh", "zsh -i", ".zshrc", "echo mark-$((40+%d))",
			`eval "$(netnice shell-init zsh)"
alias show='sh -c "netnice; true"'
inside() { sh -c "netnice; true"; }
`,
		},
		{
			"fish", "fish -i", "fish/config.fish", "echo mark-(math 40+%d)",
			`netnice shell-init fish | source
alias show='sh -c "netnice; true"'
function inside; sh -c "netnice; true"; end
`,
		},
	}, 0) {
		t.Run(sh.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(sh.name); err != nil {
				t.Fatalf("%v (apt-get install %s)", err, sh.name)
			}
			s := upStage(t)
			home := t.TempDir()
			// Without that folder fish makes completions of all man pages there, even while the test removes it.
			if err := os.MkdirAll(filepath.Join(home, ".local/share/fish/generated_completions"), 0o755); err != nil {
				t.Fatal(err)
			}
			rc := filepath.Join(home, sh.rc)
			if err := os.MkdirAll(filepath.Dir(rc), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(rc, []byte(sh.text), 0o644); err != nil {
				t.Fatal(err)
			}
			x := s.python(options{}, terminal, home, strings.ReplaceAll(sh.command, "HOME", home), sh.marker, filepath.Dir(netniceBinary))
			status := "$?"
			if sh.name == "fish" {
				status = "$status"
			}
			for _, c := range []struct{ line, want, never string }{
				{"show", "no limit", ""},
				{`sh -c 'netnice; true' @256K`, "262 kB/s total", ""},
				{"show @256K", "262 kB/s total", ""},
				{"inside @256K", "262 kB/s total", ""},
				{`sh -c 'netnice; true' @256K | sed 's/total/piped/'`, "262 kB/s piped", ""},
				{`echo | sh -c 'netnice; true' @256K 2>&1`, "262 kB/s total", ""},
				{`sh -c 'sleep 0.2; netnice; true' @256K & wait`, "262 kB/s total", ""},
				{`echo "a b" 'c  d' e\ f \@1M '@2M' @1MB/s`, "a b c d e f @1M @2M", "netnice:"},
				{`sh -c 'exit 7' @256K; echo code-` + status, "code-7", ""},
				{`echo bob@home @home`, "bob@home @home", "netnice:"},
				{"show", "no limit", ""},
				{"@1MB/s", "1 MB/s total", ""},
				{"show", "1 MB/s total", ""},
				{"@none", "", ""},
				{"show", "no limit", ""},
			} {
				x.tell(c.line)
				out := x.read("out")
				if !strings.Contains(out, c.want) || c.never != "" && strings.Contains(out, c.never) {
					t.Errorf("%s: %q: want %q in %q", sh.name, c.line, c.want, out)
				}
			}
			if !s.assertWithin("the limits have gone", 5*time.Second, func() bool { return len(s.nodes()) == 0 }) {
				t.Errorf("limits of ended commands stand: %+v", s.nodes())
			}
		})
	}
}
