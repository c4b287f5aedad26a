package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// These tests take the processors of the machine, so they run one after the other.

// runner is a process that tests of power have started.
type runner struct {
	*exec.Cmd
	t     *testing.T
	lines *bufio.Reader
}

// runs starts a command, as a user (0: root), and ends all its processes with the test.
func (s *stage) runs(uid uint32, words ...string) *runner {
	s.t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	if s.root != "" {
		dir, err := os.Open(s.root)
		if err != nil {
			s.t.Fatal(err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.start(cmd, nil); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
	})
	return &runner{Cmd: cmd, t: s.t, lines: bufio.NewReader(out)}
}

func (p *runner) pid() string { return itoa(p.Process.Pid) }

func (p *runner) line() string {
	p.t.Helper()
	text, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatalf("read what %s says: %v", p.Path, err)
	}
	return strings.TrimSpace(text)
}

// percent returns the time on one processor, over a while, of the program, its live children, and those that it has
// waited for.
func (p *runner) percent(over time.Duration) float64 {
	p.t.Helper()
	const perTick = float64(time.Second / 100)
	used := func() (ns float64) {
		tree, err := cpu.Tree(p.Process.Pid)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, pid := range tree {
			// The time is exact to the nanosecond: three processes' ticks are one or two per cent of two seconds.
			threads, err := filepath.Glob(filepath.Join("/proc", itoa(pid), "task", "*", "schedstat"))
			if err != nil {
				p.t.Fatal(err)
			}
			for _, path := range threads {
				if own, err := os.ReadFile(path); err == nil { // otherwise its parent has its time
					n, _ := strconv.ParseFloat(strings.Fields(string(own))[0], 64)
					ns += n
				}
			}
			text, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(text), ") ")
			for _, field := range strings.Fields(rest)[13:15] { // the fields of its ended children
				n, _ := strconv.ParseFloat(field, 64)
				ns += n * perTick
			}
		}
		return ns
	}
	before, begin := used(), testbed.Now()
	time.Sleep(over)
	return (used() - before) / float64(testbed.Now().Sub(begin)) * 100
}

// has checks that percentage, to within points.
func (p *runner) has(what string, want, points float64) {
	p.t.Helper()
	time.Sleep(200 * time.Millisecond)
	begin := testbed.Now()
	got := p.percent(2 * time.Second)
	p.t.Logf("%s: %.2f per cent, wanted %g", what, got, want)
	if got < want-points || got > want+points {
		p.t.Errorf("%s: %.2f per cent of a processor, want %g +- %g (%s)", what, got, want, points, cpus.excuse(begin, testbed.Now()))
	}
}

func (s *stage) powers() api.PowerList {
	s.t.Helper()
	r := s.netnice("power", "--json")
	if r.code != 0 {
		s.t.Fatalf("netnice power: %v", r)
	}
	var list api.PowerList
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *stage) noGroups() {
	s.t.Helper()
	if !eventually(5*time.Second, func() bool { return len(testutil.PowerGroups()) == 0 }) {
		s.t.Errorf("groups are left: %q", testutil.PowerGroups())
	}
}

const python = "/usr/bin/python3" // a program that every user may run

const spinPython = `
import os, sys
for i in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        break
print("ready", flush=True)
while True:
    pass
`

// A running program of three processes gets its share, which the test sets, changes and lifts as it runs. No daemon
// ran before, and nothing of the share is left.
func TestPower(t *testing.T) {
	// Not parallel: it needs the processors.
	s := newStage(t)
	p := s.runs(0, python, "-c", spinPython, "3")
	for range 3 {
		p.line()
	}
	p.has("three processes", 100*float64(min(3, cpu.Online())), 115) // other programs may want a processor, too
	s.must("power", p.pid(), "40")
	p.has("40", 40, 2)
	list := s.powers()
	if len(list.Powers) != 1 || list.Powers[0].Processes != 3 || list.Powers[0].Power != 40 || !list.Powers[0].Guaranteed || list.GuaranteedPercent != 40 {
		t.Errorf("netnice power lists %+v", list)
	}
	if got := list.Powers[0].Percent; got < 36 || got > 44 {
		t.Errorf("netnice power says that it uses %.1f per cent, want 40", got)
	}
	if r := s.netnice("power", p.pid(), "10", "--dry-run"); r.code != 0 || !strings.Contains(r.out, "would be") {
		t.Errorf("a dry run: %v", r)
	}
	p.has("after a dry run", 40, 2)
	s.must("power", p.pid(), "5")
	p.has("5", 5, 1)
	s.must("reserve", "--pid", p.pid(), "--cpu-period", "50ms", "--cpu-slice", "30ms")
	p.has("30 ms of 50", 60, 2.5)
	if r := s.netnice("power", p.pid(), itoa(100*cpu.Online()+1)); r.code == 0 || !strings.Contains(r.err, "out of range") {
		t.Errorf("more than there is: %v", r)
	}
	s.must("reserve", "--pid", p.pid(), "--release")
	p.has("released", 100*float64(min(3, cpu.Online())), 115) // other programs may want a processor, too
	s.noGroups()
	if !eventually(10*time.Second, func() bool { return s.netnice("status").code == 5 }) {
		t.Error("the daemon has not left with the last power")
	}
}

// A command gets its power from its first instruction on, with all its descendants. A priority below the ordinary
// one gives way.
func TestPowerExec(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestPower and internal/cpushare TestPowerCommand")
	// Not parallel: it needs the processors.
	s := upStage(t)
	build := s.runs(0, netniceBinary, "exec", "30", "sh", "-c", `echo ready; while :; do (i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done); done`)
	build.line()
	build.has("a build that forks", 30, 2)

	low := s.runs(0, netniceBinary, "exec", "-255", python, "-c", spinPython, "2")
	low.line()
	low.line()
	high := s.runs(0, netniceBinary, "exec", "60", python, "-c", spinPython, "1")
	high.line()
	high.has("guaranteed 60", 60, 3)
	low.has("what the others leave", 100*float64(cpu.Online())-140, 70) // or 100 less, if others have a processor
	if r := s.netnice("exec", "5", "sh", "-c", "exit 7"); r.code != 7 {
		t.Errorf("exit 7 under exec: %v", r)
	}
	for _, words := range [][]string{{"exec", "5"}, {"exec", "much", "true"}, {"exec", "-256", "true"}} {
		if r := s.netnice(words...); r.code != 125 || r.err == "" {
			t.Errorf("netnice %q: %v", words, r)
		}
	}
	if r := s.netnice("exec", "5", "no-such-command"); r.code != 127 {
		t.Errorf("no such command: %v", r)
	}
}

// Users set a ceiling for their own processes, below the administrator's, and guarantee nothing.
func TestPowerOfUsers(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cpushare TestPowerOfOwners, TestPowerNested")
	// Not parallel: it needs the processors.
	spare := newUsers()
	s := upStage(t)
	uid := spare + 57
	p := s.runs(uid, python, "-c", spinPython, "1")
	p.line()
	as := func(args ...string) result {
		cmd := s.command(args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return s.run(cmd, nil)
	}
	if r := as("power", p.pid(), "20"); r.code != 0 || strings.Contains(r.out, "guaranteed") {
		t.Errorf("a user's own: %v", r)
	}
	p.has("a user's own", 20, 2)
	s.must("power", p.pid(), "10")
	if r := as("power", p.pid(), "60"); r.code != 0 || !strings.Contains(r.out, "10%") {
		t.Errorf("beside the administrator's: %v", r)
	}
	p.has("the lower", 10, 1.5)
	others := s.runs(0, "sleep", "60")
	for _, words := range [][]string{{"power", others.pid(), "10"}, {"reserve", "--pid", p.pid(), "--cpu-period", "20ms", "--cpu-slice", "5ms"}} {
		if r := as(words...); r.code == 0 || !strings.Contains(r.err, "sudo netnice") {
			t.Errorf("a user's netnice %q: %v", words, r)
		}
	}
	s.must("power", p.pid(), "0")
	s.noGroups()
}

const setPower = `
#include <netnice.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), is = 1000;

	if (set_power(0, n) || get_power(0, &is)) {
		perror("set_power");
		return 1;
	}
	printf("%d\n", is);
	fflush(stdout);
	for (;;)
		;
}
`

// A program sets its own speed by one call of the header, without privileges.
func TestSetPower(t *testing.T) {
	// Not parallel: it needs the processors.
	spare := newUsers()
	s := stageInOwnCgroup(t)
	s.daemon()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	if err := os.WriteFile(source, []byte(setPower), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-Wall", "-Werror", "-static", "-I../../include", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own := s.runs(spare+58, binary, "15")
	if got := own.line(); got != "15" {
		t.Errorf("get_power says %q, want 15", got)
	}
	own.has("a program of its own will", 15, 1.5)
	low := s.runs(spare+58, binary, "-20")
	if got := low.line(); got != "-20" {
		t.Errorf("get_power says %q, want -20", got)
	}
	_ = syscall.Kill(low.Process.Pid, syscall.SIGKILL)
	refused := s.runs(spare+58, binary, "99999")
	if err := refused.Wait(); err == nil {
		t.Error("99999 was taken")
	}
	root := s.runs(0, binary, "25")
	root.line()
	if list := s.powers(); list.GuaranteedPercent != 25 {
		t.Errorf("guaranteed: %g, want the administrator's 25", list.GuaranteedPercent)
	}
}

// killsVariable sets the number of times that the test kills the daemon, for users with time.
const killsVariable = "NETNICE_TEST_KILLS"

// kill -9 of the daemon comes at any moment. The state is that before the command, or the state that the command
// asked for. The next daemon takes it up, no process stands still, and no group is left.
func TestPowerKilledDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cpushare TestPowerSurvivesTheDaemon")
	// Not parallel: it needs the processors.
	s := newStage(t)
	p := s.runs(0, python, "-c", spinPython, "2")
	p.line()
	p.line()
	before := groupOf(t, p.Process.Pid)
	d := s.daemon()
	s.must("power", p.pid(), "20")
	d.kill()
	p.has("without a daemon", 20, 1.5)
	rounds := 12
	if n, err := strconv.Atoi(os.Getenv(killsVariable)); err == nil {
		rounds = n
	}
	for i := range rounds {
		d = s.daemon()
		done := make(chan result, 1)
		words := [][]string{{"0"}, {"30", "--slots", "1ms"}, {"60"}, {"-50"}}[i%4]
		go func() { done <- s.netnice(append([]string{"power", p.pid()}, words...)...) }()
		time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
		d.kill()
		<-done // the command may have started a daemon itself
		_ = s.netnice("down")
		if left := testutil.PowerGroups(); len(left) > 0 {
			t.Fatalf("round %d: groups are left: %q", i, left)
		}
		if at := groupOf(t, p.Process.Pid); at != before {
			t.Fatalf("round %d: the process is in %s, not in %s", i, at, before)
		}
		if i%4 == 3 {
			if got := p.percent(300 * time.Millisecond); got < 50 {
				t.Errorf("round %d: it has %.1f per cent of a processor", i, got)
			}
		}
	}
}

// groupOf returns the groups of a process in every hierarchy.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A sender must have its rate while other programs want the processors. netnice measures the processor time that it
// needs, reserves it, and corrects it as the need grows.
func TestPowerForARate(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/cpushare TestPowerForARate, TestPowerFollowsARate")
	// Not parallel: it needs the processors.
	s := upStage(t)
	f := newField(s)
	tx := f.send(testbed.SenderConfig{WriteSize: 2048})
	s.must("power", itoa(f.rx.PID()), "50") // it stands for another computer
	for range 2 * cpu.Online() {
		s.runs(0, python, "-c", spinPython, "1").line()
	}
	const rate = 25e6
	at := s.must("reserve", "--pid", tx.pid(), "--rate", "25MB/s", "--cpu", "auto")
	f.holds("25 MB/s beside programs that want all processors", at.Add(3*time.Second), rate, tx.port)
	r := s.netnice("power", tx.pid())
	if r.code != 0 || !strings.Contains(r.out, "for each Mbit/s; reserved are 1.25 times what 25 MB/s need") {
		t.Errorf("how it was found: %v", r)
	}
	t.Log(r.out)
	for _, p := range s.powers().Powers {
		if part := float64(p.SliceNS) / float64(p.PeriodNS) * 100; p.PID == tx.PID() && (part < 2 || part > 60) {
			t.Errorf("%.1f per cent of a processor are reserved", part)
		}
	}
	s.must("reserve", "--pid", tx.pid(), "--release")
	if list := s.powers(); len(list.Powers) != 1 {
		t.Errorf("after its release %+v stand", list.Powers)
	}
	if nodes := s.nodes(); len(nodes) != 0 {
		t.Errorf("after its release %+v stand", nodes)
	}
}
