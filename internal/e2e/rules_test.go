package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// ruled is a field on which a daemon follows rules.
type ruled struct {
	*field
	dir string // folder of the rules
	d   *daemon
}

func newRuled(t *testing.T, rules string) *ruled {
	t.Helper()
	s := newStage(t)
	dir, err := os.MkdirTemp(work, "rules-")
	if err != nil {
		t.Fatal(err)
	}
	r := &ruled{dir: dir}
	s.config = dir
	r.field = newField(s)
	r.write(rules)
	r.d = s.daemon()
	return r
}

// write replaces the text of the rules.
func (r *ruled) write(text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, "netnice.toml")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// ruleMembers returns the number of processes that a rule holds together, or 0 if it has no node.
func (r *ruled) ruleMembers(rule string) int {
	r.t.Helper()
	var list api.NodeList
	res := r.netnice("show", "rule:"+rule, "--json")
	if json.Unmarshal([]byte(res.out), &list) != nil || len(list.Nodes) != 1 {
		return 0
	}
	return list.Nodes[0].Processes
}

// copyAs copies this program under a name that rules know, and returns its path.
func copyAs(t *testing.T, name string) string {
	t.Helper()
	return copyFrom(t, "/proc/self/exe", name)
}

// copyFrom copies a program under another name, and returns its path.
func copyFrom(t *testing.T, source, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp(work, "bin-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(dir, name)
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return path
}

// floods starts a program that sends to ports, to all but the first by children. It returns the instant from which
// the program runs.
func (r *ruled) floods(path string, uid uint32, ports ...uint16) (*script, testbed.Instant) {
	r.t.Helper()
	args := []string{path, agentName, agentFlood}
	for _, p := range ports {
		args = append(args, r.to(p))
	}
	return r.script(options{in: r.A, uid: uid}, args...), testbed.Now()
}

// floodAgent sends to the first address, and has children of the same program under another name send to the others.
func floodAgent(to ...string) error {
	for _, address := range to[1:] {
		cmd := exec.Command("/proc/self/exe", agentName, agentFlood, address)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	fd, err := dial(to[0], syscall.SOCK_STREAM)
	if err != nil {
		return err
	}
	data := make([]byte, 1<<16)
	for {
		if _, err := syscall.Write(fd, data); err != nil {
			return err
		}
	}
}

// nodeOf returns the node of a process as netnice shows it, nil if it has none.
func (r *ruled) nodeOf(pid string) *api.Node {
	n, ok := r.nodes()["pid:"+pid]
	if !ok {
		return nil
	}
	return &n
}

// afterExec returns the time from the exec of a process until its rules were in force, by the daemon's log.
func (r *ruled) afterExec(pid string) time.Duration {
	r.t.Helper()
	line := regexp.MustCompile(`msg="rules applied" pid=` + pid + ` .*after_exec=(\S+)`)
	var found []string
	eventually(5*time.Second, func() bool { found = line.FindStringSubmatch(r.d.log.String()); return found != nil })
	if found == nil {
		r.t.Fatalf("no rule was applied to process %s", pid)
	}
	d, err := time.ParseDuration(found[1])
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// sessions returns a rule for the programs of a name, of a user and the next one: other daemons of the machine
// follow rules of their own.
func sessions(program string, user uint32) string {
	return fmt.Sprintf(`
[[rule]]
name = "all %s sessions"
program = "%[1]s"
user = [%d, %d]
up = "1MB/s"
`, program, user, user+1)
}

// The rule is for all scp sessions of all users. A program of another user is limited within 50 ms of its exec, with
// its children, and each session by itself.
func TestRuleHoldsAtExec(t *testing.T) {
	t.Parallel()
	sessionUser := newUsers()
	r := newRuled(t, sessions("scp", sessionUser))
	scp, other := copyAs(t, "scp"), copyAs(t, "cp")
	p := r.ports
	x, at := r.floods(scp, sessionUser, p+1, p+2)
	y, _ := r.floods(scp, sessionUser+1, p+4)
	for _, s := range []*script{x, y} {
		after := r.afterExec(s.pid())
		t.Logf("in force %v after exec", after)
		if after > 200*time.Millisecond && !excused(t, at, testbed.Now()) {
			t.Errorf("in force %v after exec, want 50 ms", after)
		}
	}
	at = testbed.Now()
	r.holds("an scp and its child", at, 1e6, p+1, p+2)
	r.holds("another user's", at, 1e6, p+4)
	_, begin := r.floods(other, sessionUser, p+3)
	r.free("no scp", begin, freely, p+3)
	n := r.nodeOf(x.pid())
	if n == nil || n.Processes != 2 || len(n.Limits) != 1 || n.Limits[0].Rule == nil || n.Limits[0].Rule.Name != "all scp sessions" || n.Limits[0].Rule.Line != 2 {
		t.Errorf("the limit of an scp is shown as %+v", n)
	}
	if got := r.netnice("rules", "test", x.pid()); !strings.Contains(got.out, "all scp sessions") || !strings.Contains(got.out, "holds: 1 MB/s up") {
		t.Errorf("rules test: %v", got)
	}
	// The limit ends with the process: at once where the backlog is empty.
	z := r.script(options{in: r.A, uid: sessionUser}, scp, agentName, agentIdle)
	r.assertWithin("an idle scp has a limit", 2*time.Second, func() bool { return r.nodeOf(z.pid()) != nil })
	z.close()
	r.assertWithin("that of one that has ended is gone", 2*time.Second, func() bool { return r.nodeOf(z.pid()) == nil })
}

// The daemon reads rules again under load: no limit is lost for a moment, an invalid rule changes nothing, and
// running programs obey the new ones.
func TestRulesAreReadAgain(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestRulesAtExecAndReload, internal/source/rulefiles TestReloadReadsOneUsersFile")
	t.Parallel()
	sessionUser := newUsers()
	r := newRuled(t, "")
	const name = "rsync"
	rule := sessions(name, sessionUser)
	scp := copyAs(t, name)
	p := r.ports
	x, begin := r.floods(scp, sessionUser, p+1, p+2)
	r.free("without rules", begin, freely, p+1, p+2)
	r.write(rule)
	r.holds("a rule for what runs", r.must("rules", "reload"), 1e6, p+1, p+2)

	// The same rule comes again and again, with others.
	from := testbed.Now()
	for i := range 10 {
		r.write(strings.Repeat("# moved\n", i) + rule + fmt.Sprintf("[[rule]]\nprogram = 'x%d'\nup = '1MB/s'\n", i))
		r.must("rules", "reload")
	}
	to := testbed.Now()
	got := r.rate(from, to, p+1, p+2)
	t.Logf("while rules were read 10 times: %.3f of the limit", got/1e6)
	if got > 1.1e6 {
		t.Errorf("%.0f bytes/s while rules were read again, want 1 MB/s", got)
	}

	// The daemon reports an invalid rule, and changes nothing.
	r.write("[[rule]]\nprogram = 'rsync'\nup = '9MB/s'\n[[rule]]\nspeed = 3\n")
	bad := testbed.Now()
	if res := r.netnice("rules", "reload"); res.code != 1 || !strings.Contains(res.err, "netnice.toml:5:1: a rule has no key") {
		t.Errorf("reload of what is wrong: %v", res)
	}
	r.holds("with a file that is wrong", bad, 1e6, p+1, p+2)
	if res := r.netnice("rules", "list", "--json"); !strings.Contains(res.out, `"line": 5`) || !strings.Contains(res.out, `"up_bytes_per_sec": 1000000`) {
		t.Errorf("rules list: %v", res)
	}

	// The daemon notices a changed file by itself. A killed daemon leaves all rules in force, and the next one
	// follows the file.
	r.write(strings.Replace(rule, "1MB/s", "2MB/s", 1))
	r.assertWithin("a changed file is followed", 3*time.Second, func() bool {
		n := r.nodeOf(x.pid())
		return n != nil && n.Limits[0].BytesPerSec == 2e6
	})
	r.d.kill()
	r.holds("without a daemon", testbed.Now(), 2e6, p+1, p+2)
	r.write(strings.Replace(rule, "1MB/s", "3MB/s", 1))
	r.d = r.daemon()
	r.assertWithin("the next daemon follows the file", 3*time.Second, func() bool {
		n := r.nodeOf(x.pid())
		return n != nil && len(r.nodes()) == 1 && n.Limits[0].BytesPerSec == 3e6
	})
	// A limit set by a command precedes the rule's, and the rule's is there again afterwards.
	r.holds("a command", r.must("set", "--pid", x.pid(), "--up", "5MB/s"), 5e6, p+1, p+2)
	r.holds("taken back", r.must("unset", "--pid", x.pid()), 3e6, p+1, p+2)
	r.write("")
	r.free("the rule is gone", r.must("rules", "reload"), freely, p+1, p+2)
}

// One limit covers all matching processes, of two users and in another tree with a limit.
func TestRuleForAllTogether(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestRulesForAllTogether")
	t.Parallel()
	sessionUser := newUsers()
	const name = "sftp"
	r := newRuled(t, strings.Replace(sessions(name, sessionUser), "up", "share = 'all'\nup", 1))
	scp := copyAs(t, name)
	p := r.ports
	r.floods(scp, sessionUser, p+1)
	y, _ := r.floods(scp, sessionUser+1, p+2, p+3)
	r.assertWithin("the rule holds for three", 2*time.Second, func() bool { return r.ruleMembers("all sftp sessions") == 3 })
	// Each has a segment of 64 KB on the way, which is paid for first.
	r.holds("three of two users", testbed.Now().Add(time.Second), 1e6, p+1, p+2, p+3)
	// A process does not leave its own limit because of a rule.
	r.holds("a limit inside", r.must("set", "--pid", y.pid(), "--up", "500kB/s"), 5e5, p+2, p+3)
}
