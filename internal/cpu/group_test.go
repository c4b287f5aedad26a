package cpu

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

// roleVariable makes this program play a role instead of running tests, because an emulated kernel has no other program.
const roleVariable = "NETNICE_TEST_CPU_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		testutil.Supervise()
		os.Exit(m.Run())
	case "sleep":
		time.Sleep(time.Minute)
	case "end":
	case "time":
		lookAtTheTime()
	case "nest": // a child that spins
		child := as("1")
		if child.Start() == nil {
			fmt.Println(child.Process.Pid)
			_ = child.Wait()
		}
	case "tree": // it starts more and more children, and one of them has a child
		for _, role := range []string{"sleep", "nest"} {
			if as(role).Start() != nil {
				return
			}
		}
		fmt.Println("ready")
		for {
			_ = as("end").Run()
		}
	default:
		n, _ := strconv.Atoi(role)
		spin(n)
	}
}

// as returns a command that runs this program in a role.
func as(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

func spin(threads int) {
	runtime.GOMAXPROCS(threads)
	for range threads - 1 {
		go spun()
	}
	spun()
}

func spun() {
	for i := 0; ; i++ {
		_ = math.Sqrt(float64(i))
	}
}

// spinner starts a process that wants as many processors as it has threads.
func spinner(t *testing.T, threads int) int {
	t.Helper()
	return started(t, as(strconv.Itoa(threads)))
}

func started(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	// The kernel sends Pdeathsig when the thread that started the process ends.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// percent returns a process's part of one processor over a time.
func percent(t *testing.T, pid int, over time.Duration) float64 {
	t.Helper()
	before, begin := ThreadsUsed(pid), time.Now()
	time.Sleep(over)
	return float64(ThreadsUsed(pid)-before) / float64(time.Since(begin)) * 100
}

// noScopes stands for a machine without systemd.
type noScopes struct{}

func (noScopes) Running() bool { return false }

func (noScopes) StartScope(context.Context, string, string, []int, ...sdbus.Property) error {
	return unix.ENOSYS
}

func (noScopes) SetProperties(context.Context, string, ...sdbus.Property) error { return unix.ENOSYS }

func machine(t *testing.T) *Machine {
	t.Helper()
	testutil.RequireRoot(t)
	m, err := Find(noScopes{})
	require.NoError(t, err)
	t.Logf("version 2: %t, at %s", m.v2, m.mount)
	return m
}

// made makes the group of a process, until the test ends.
func made(t *testing.T, m *Machine, pid int, s Share) Group {
	t.Helper()
	g, err := m.Place(pid)
	require.NoError(t, err)
	require.NoDirExists(t, g.Dir)
	elsewhere, err := m.Make(t.Context(), &g, pid, s)
	require.NoError(t, err)
	require.Zero(t, elsewhere)
	t.Cleanup(func() {
		require.NoError(t, m.Dissolve(context.Background(), g))
		require.NoDirExists(t, g.Dir)
	})
	return g
}

func TestGroupHasItsCeiling(t *testing.T) {
	m := machine(t)
	ceilings := testutil.Subset([]int{2, 30, 75}, 1)
	for _, threads := range testutil.Subset([]int{1, 4}, 1) {
		pid := spinner(t, threads)
		g := made(t, m, pid, Ceiling(30))
		for _, n := range ceilings {
			require.NoError(t, m.Set(t.Context(), g, Ceiling(n)))
			time.Sleep(100 * time.Millisecond)
			got := percent(t, pid, 2*time.Second)
			t.Logf("%d threads, n = %d: %.2f per cent", threads, n, got)
			require.InDelta(t, n, got, 1.5, "%d threads", threads)
		}
		require.NoError(t, m.Dissolve(t.Context(), g))
		last := ceilings[len(ceilings)-1]
		require.Greater(t, percent(t, pid, time.Second), float64(last+10), "free again, also beside other programs")
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	}
}

// The group keeps its guarantee beside twice as many competitors as there are processors, each of nice -10.
func TestGroupHasWhatIsGuaranteed(t *testing.T) {
	m := machine(t)
	pid := spinner(t, 1)
	for range 2 * Online() {
		made(t, m, spinner(t, 1), Share{Weight: 9548}) // the weight of nice -10
	}
	g := made(t, m, pid, Ceiling(60))
	time.Sleep(200 * time.Millisecond)
	without := percent(t, pid, 2*time.Second)
	s := Ceiling(60)
	s.Weight = MostWeight
	require.NoError(t, m.Set(t.Context(), g, s))
	time.Sleep(200 * time.Millisecond)
	with := percent(t, pid, 2*time.Second)
	t.Logf("n = 60 beside %d others: %.1f per cent, guaranteed %.1f", 2*Online(), without, with)
	require.Less(t, without, 55.0, "there is nothing to be guaranteed")
	require.InDelta(t, 60, with, 1.5)
}

// Make and Dissolve move all processes of a program that forks all the time.
func TestGroupHasTheTree(t *testing.T) {
	m := machine(t)
	cmd := as("tree")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	pid := started(t, cmd)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	before, err := m.of(pid)
	require.NoError(t, err)
	g := made(t, m, pid, Ceiling(50))
	members := func(where string) {
		t.Helper()
		var tree []int
		require.Eventually(t, func() bool { // one of the children starts its own child at any time
			tree, err = Tree(pid)
			return err != nil || len(tree) >= 4
		}, time.Second, time.Millisecond)
		require.NoError(t, err)
		for _, p := range tree {
			require.Eventually(t, func() bool { // an ending process may be in no group
				at, err := m.of(p)
				return err != nil || at == where
			}, time.Second, time.Millisecond, "process %d is not in %s", p, where)
		}
	}
	members(g.Dir)
	require.Eventually(t, func() bool { return len(m.Members(g)) >= 4 }, time.Second, time.Millisecond)
	require.NoError(t, m.Dissolve(t.Context(), g))
	members(before)
	require.NoDirExists(t, g.Dir)
	require.NoError(t, m.Dissolve(t.Context(), g), "twice")
}

// The lower of two ceilings around a process holds in either order of setting, and other processes may use the rest of
// the outer ceiling.
func TestGroupsWithinGroups(t *testing.T) {
	m := machine(t)
	cmd := as("nest")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	outer := started(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	inner, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)

	og := made(t, m, outer, Ceiling(20))
	ig := made(t, m, inner, Ceiling(50))
	require.Equal(t, og.Dir, filepath.Dir(ig.Dir))
	time.Sleep(100 * time.Millisecond)
	require.InDelta(t, 20, percent(t, inner, time.Second), 2, "the outer's")
	require.NoError(t, m.Set(t.Context(), ig, Ceiling(10)))
	time.Sleep(100 * time.Millisecond)
	require.InDelta(t, 10, percent(t, inner, time.Second), 2, "the inner's")
	require.Contains(t, m.Members(og), inner)
}

// The new group is below the process's present group, where others may have set limits.
func TestGroupBelowAnother(t *testing.T) {
	m := machine(t)
	if m.v2 && !m.offers(m.mount, "cgroup.subtree_control") {
		require.NoError(t, write(m.mount, "cgroup.subtree_control", "+cpu"))
		t.Cleanup(func() { require.NoError(t, write(m.mount, "cgroup.subtree_control", "-cpu")) })
	}
	dir := filepath.Join(m.mount, testutil.RunName()+"below")
	require.NoError(t, os.Mkdir(dir, 0o755))
	pid := spinner(t, 1)
	t.Cleanup(func() {
		require.Eventually(t, func() bool {
			_ = unix.Kill(pid, unix.SIGKILL)
			return os.Remove(dir) == nil
		}, 5*time.Second, 10*time.Millisecond)
	})
	require.NoError(t, write(dir, "cgroup.procs", strconv.Itoa(pid)))
	controlled := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")) // version 1 has none
		return string(text)
	}
	before := controlled()
	g := made(t, m, pid, Ceiling(25))
	require.Equal(t, dir, filepath.Dir(g.Dir))
	require.Equal(t, m.v2, g.Enabled)
	require.Equal(t, []int{pid}, m.Members(g))
	time.Sleep(100 * time.Millisecond)
	require.InDelta(t, 25, percent(t, pid, time.Second), 2)
	require.NoError(t, m.Dissolve(t.Context(), g))
	at, err := m.of(pid)
	require.NoError(t, err)
	require.Equal(t, dir, at)
	require.Equal(t, before, controlled())
}

func TestGroupOfAProcessThatHasEnded(t *testing.T) {
	m := machine(t)
	pid := spinner(t, 1)
	g, err := m.Place(pid)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	require.Eventually(t, func() bool { return zombie(pid) }, 5*time.Second, 10*time.Millisecond)
	_, _ = m.Make(t.Context(), &g, pid, Ceiling(20))
	require.NoError(t, m.Dissolve(t.Context(), g))
	require.NoDirExists(t, g.Dir)
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}
