package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A reader types the commands of README.md, its picture and docs/guide, and sees what the pages show. This test runs the lines of
// the console blocks, page by page, each page with a daemon and a network of its own, and compares the output.
//
// NETNICE_TEST_WRITE_GUIDE=1 writes the output into the pages instead, and =all also what differs in its figures alone.
// Whoever does so reads the difference.

// guideWrites tells the test to write what commands print into the pages.
const guideWrites = "NETNICE_TEST_WRITE_GUIDE"

// failing is the page whose commands show errors.
const failing = "troubleshooting.md"

var (
	// guidePrograms is the comment of a page that names the programs which run while somebody reads the page.
	guidePrograms = regexp.MustCompile(`(?s)<!-- programs: (.*?) -->`)
	// guideProgramSpec is one of them: "rsync of bob in nginx.service sends as 4711".
	guideProgramSpec = regexp.MustCompile(`^(\S+)(?: of (\w+))?(?: in (\S+))? (sends|receives|calls|works|waits) as (\d+)$`)
	// guideReads matches commands that print figures, which need a moment after a change.
	guideReads = regexp.MustCompile(`^netnice (ls|show|why|power|status|adapt|metrics)\b`)
	sometimes  = regexp.MustCompile(`(?m)^(?:  (?:held|queued) |netnice: note: its connections have promised ).*\n`)
)

// The test runs alone, and its pages one after the other: commands find the programs of a name on the whole machine.
func TestGuide(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cli TestFirstDay, TestReadmeCommands")
	testutil.RequireRoot(t)
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) == 0 {
		t.Skip("the pages are not here")
	}
	for _, page := range append(pages, "../../README.md", "../../docs/img/terminal.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if commands := consoleCommands(string(text)); len(commands) > 0 {
			name := filepath.Base(page)
			if page == "../../README.md" {
				name = "the project's README.md"
			}
			t.Run(name, func(t *testing.T) {
				newReader(t, string(text)).read(page, string(text), commands)
			})
		}
	}
}

// consoleCommands returns the commands of a page's console blocks.
func consoleCommands(text string) (list []testutil.Command) {
	blocks, _ := testutil.Blocks(text)
	for _, b := range blocks {
		if b.Kind == "console" {
			list = append(list, testutil.Commands(b)...)
		}
	}
	return list
}

// reader types the commands of a page.
type reader struct {
	*stage
	net          *testbed.Pair
	alice, bob   uint32
	files        string            // folder with the files of the stage
	pids         map[string]string // real process ids, by those of the page
	toReal, back []string          // other texts that differ between the page and the stage, as pairs
}

func newReader(t *testing.T, page string) *reader {
	t.Helper()
	r := &reader{stage: stageInOwnCgroup(t), net: testutil.MustPair(t), pids: map[string]string{}}
	r.alice = newUsers()
	r.bob = r.alice + 1
	var err error
	if r.files, err = os.MkdirTemp(work, "guide-"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.files, 0o755); err != nil {
		t.Fatal(err)
	}
	test, err := os.Executable() // the parent of the programs
	if err != nil {
		t.Fatal(err)
	}
	r.toReal = []string{"eth0", testbed.Device, guidePageNet, guideNet, guidePageHost, guideHost, guidePageSelf, guideSelf}
	r.back = []string{r.files + "/programs", "/usr/bin", test, "/usr/bin/bash", testbed.Device, "eth0", guideNet, guidePageNet, guideSelf, guidePageSelf, guideHost, guidePageHost}
	r.back = append(r.back, "/"+filepath.Base(r.root), "/user.slice/session-2.scope")
	if got := r.run(exec.Command("ip", "route", "add", "default", "via", guideHost), r.net.A); got.code != 0 {
		t.Fatal(got)
	}
	r.furnish()
	r.config = "/etc/netnice"
	r.daemonIn(r.net.A)
	if m := guidePrograms.FindStringSubmatch(page); m != nil {
		r.host()
		for spec := range strings.SplitSeq(m[1], ";") {
			r.program(strings.Join(strings.Fields(spec), " "))
		}
	}
	return r
}

// furnish puts folders /etc and /home onto the stage, and small programs that commands of the pages start.
func (r *reader) furnish() {
	r.t.Helper()
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		r.t.Fatal(err)
	}
	users := fmt.Sprintf("alice:x:%d:%[1]d::/home/alice:/bin/sh\nbob:x:%d:%[2]d::/home/bob:/bin/sh\n", r.alice, r.bob)
	texts := map[string]string{
		"etc/passwd":        users + string(passwd),
		"etc/group":         fmt.Sprintf("root:x:0:\nalice:x:%d:\nbob:x:%d:\n", r.alice, r.bob),
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"etc/hosts":         "127.0.0.1 localhost\n" + guideHost + " backup.example.net\n",
	}
	for _, name := range []string{"ld.so.cache", "localtime"} {
		if text, err := os.ReadFile("/etc/" + name); err == nil { // not each machine has them
			texts["etc/"+name] = string(text)
		}
	}
	for _, name := range []string{"rsync", "scp", "borg", "curl", "apt-get", "make", "firefox"} {
		texts["bin/"+name] = "#!/bin/sh\nsleep 0.2\n"
	}
	for path, text := range texts {
		path = filepath.Join(r.files, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			r.t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-a", "/etc/alternatives", r.files+"/etc").CombinedOutput(); err != nil { // cc is there
		r.t.Logf("%v: %s", err, out)
	}
	home := filepath.Join(r.files, "home")
	for _, dir := range []string{"etc/netnice", "home/alice", "home/bob"} {
		if err := os.MkdirAll(filepath.Join(r.files, dir), 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, dir := range []string{"examples", "include"} {
		if err := os.CopyFS(filepath.Join(home, "alice", dir), os.DirFS("../../"+dir)); err != nil {
			r.t.Fatal(err)
		}
	}
	err = errors.Join(os.Symlink(netniceBinary, r.files+"/bin/netnice"), os.Symlink(netniceBinary, r.files+"/bin/nlimit"), chownAll(home+"/alice", r.alice), chownAll(home+"/bob", r.bob))
	if err != nil {
		r.t.Fatal(err)
	}
	r.do(func() error {
		return errors.Join(unix.Mount(r.files+"/etc", "/etc", "", unix.MS_BIND, ""), unix.Mount(home, "/home", "", unix.MS_BIND, ""))
	})
}

func chownAll(dir string, uid uint32) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, int(uid), int(uid)))
	})
}

// host starts the host that the programs of a page talk to.
func (r *reader) host() {
	r.t.Helper()
	// It is outside of the cgroup that this netnice sees, as another machine would be.
	o := options{in: r.net.B, cgroup: cgroupMount(), env: []string{guideProgram + "=serves"}}
	r.script(o, "/proc/self/exe").read("ready")
	if err := os.Mkdir(r.files+"/programs", 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// program starts a program that a page names.
func (r *reader) program(spec string) {
	r.t.Helper()
	m := guideProgramSpec.FindStringSubmatch(spec)
	if m == nil {
		r.t.Fatalf("programs: %q is not NAME [of USER] [in UNIT|CONTAINER] VERB as PID", spec)
	}
	name, user, in, verb, pid := m[1], m[2], m[3], m[4], m[5]
	path := filepath.Join(r.files, "programs", name)
	if _, err := os.Stat(path); err != nil {
		if err := os.Link(r.agent(), path); err != nil {
			r.t.Fatal(err)
		}
	}
	o := options{in: r.net.A, uid: r.alice, env: []string{guideProgram + "=" + verb, "GOMAXPROCS=1"}}
	switch user {
	case "bob":
		o.uid = r.bob
	case "root":
		o.uid = 0
	}
	if in != "" {
		o.cgroup = r.group(in)
	}
	x := r.script(o, path)
	x.read("ready")
	r.pids[pid] = x.pid()
}

// agent returns the path of a copy of this program.
func (r *reader) agent() string {
	r.t.Helper()
	path := filepath.Join(r.files, "agent")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return path
}

// group returns the folder of a unit's cgroup, or of a container's, and makes it first.
func (r *reader) group(name string) string {
	r.t.Helper()
	slice := filepath.Join(r.root, "system.slice")
	dir := filepath.Join(slice, name)
	if !strings.HasSuffix(name, ".service") {
		id := fmt.Sprintf("%x", name)
		id += containerID("a")[:64-len(id)]
		r.nameContainer(id, name)
		dir = filepath.Join(slice, "docker-"+id+".scope")
	}
	for _, dir := range []string{slice, dir} {
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { eventually(3*time.Second, func() bool { return os.Remove(dir) == nil }) })
	}
	return dir
}

// read types the commands of a page, and compares what they print.
func (r *reader) read(page, text string, commands []testutil.Command) {
	r.t.Helper()
	printed := make([]string, len(commands))
	for i, c := range commands {
		mayFail := filepath.Base(page) == failing
		var got result
		for try := 1; ; try++ {
			if guideReads.MatchString(c.Text) {
				time.Sleep(1200 * time.Millisecond) // figures are those of the last second
			}
			got = r.typed(c)
			printed[i] = r.asOnPage(got.out)
			if try == 4 || !guideReads.MatchString(c.Text) || steady(printed[i]) == steady(c.Output) {
				break
			}
		}
		where := fmt.Sprintf("%s:%d: %s", strings.TrimPrefix(page, "../../"), c.Line, c.Text)
		if got.code != 0 && !mayFail {
			r.t.Errorf("%s: exit code %d\n%s", where, got.code, printed[i])
		}
		if steady(printed[i]) == steady(c.Output) {
			if os.Getenv(guideWrites) != "all" {
				printed[i] = c.Output // the page stays as it is
			}
		} else if os.Getenv(guideWrites) == "" {
			r.t.Errorf("%s\nprints:\n%s\nand the page has:\n%s", where, printed[i], c.Output)
		}
	}
	if os.Getenv(guideWrites) != "" {
		writeOutputs(r.t, page, text, commands, printed)
	}
	r.t.Logf("%d commands", len(commands))
	var got result
	if !eventually(3*time.Second, func() bool { // those of single addresses go a moment later
		got = r.netnice("ls")
		return strings.HasPrefix(got.out, "no limits\n") || strings.Contains(got.err, "no limit is in force")
	}) {
		r.t.Errorf("%s: after the last command there are limits:\n%s", page, got)
	}
}

// steady is testutil.Steady without the lines that commands print only if there is something to tell.
func steady(output string) string { return testutil.Steady(sometimes.ReplaceAllString(output, "")) }

// typed runs a command as a shell does.
func (r *reader) typed(c testutil.Command) result {
	r.t.Helper()
	line := strings.NewReplacer(r.toReal...).Replace(c.Text)
	for pid, real := range r.pids {
		line = regexp.MustCompile(`\b`+pid+`\b`).ReplaceAllString(line, real)
	}
	group, err := os.Open(r.root)
	if err != nil {
		r.t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command("/bin/sh", "-c", "exec 2>&1\n"+line)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	home := "/root"
	if !c.Root {
		home = "/home/alice"
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: r.alice, Gid: r.alice}
	}
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + r.files + "/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home, "LANG=C.UTF-8", testbed.Beside}
	return r.run(cmd, r.net.A)
}

// asOnPage replaces what is of this run in an output by what stands on the page.
func (r *reader) asOnPage(output string) string {
	for pid, real := range r.pids {
		output = regexp.MustCompile(`\b`+real+`\b`).ReplaceAllString(output, pid)
	}
	return strings.NewReplacer(r.back...).Replace(output)
}

// writeOutputs puts the outputs of commands into a page.
func writeOutputs(t *testing.T, page, text string, commands []testutil.Command, printed []string) {
	t.Helper()
	lines := strings.SplitAfter(text, "\n")
	for i := len(commands) - 1; i >= 0; i-- {
		c := commands[i]
		from, to := c.Line+strings.Count(c.Text, "\n"), c.After-1
		lines = slices.Concat(lines[:from], strings.SplitAfter(printed[i], "\n"), lines[to:])
	}
	if err := os.WriteFile(page, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
