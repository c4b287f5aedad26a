package pacing

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

const familyEnv = "NETNICE_TEST_FAMILY"

// napEnv is the variable that says how long a process of a test sleeps.
const napEnv = "NETNICE_TEST_NAP"

// TestMain makes the test's program a parent of n children, for family, or a process that sleeps.
func TestMain(m *testing.M) {
	if nap, err := time.ParseDuration(os.Getenv(napEnv)); err == nil {
		time.Sleep(nap)
		os.Exit(0)
	}
	if os.Getenv(sendsEnv) != "" {
		sendInherited()
	}
	n, err := strconv.Atoi(os.Getenv(familyEnv))
	if err != nil {
		testutil.Supervise()
		os.Exit(m.Run())
	}
	for range n {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), familyEnv+"=0")
		child.Stdin = os.Stdin // the input ends when the test does
		if err := child.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(child.Process.Pid)
	}
	fmt.Println("done")
	_, _ = io.ReadAll(os.Stdin)
}

// family starts a process with n children and returns the pids, the parent's first. They end with the test.
func family(t *testing.T, n int) []uint32 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), familyEnv+"="+strconv.Itoa(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	pids := []uint32{uint32(cmd.Process.Pid)}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "done"; {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, uint32(pid))
	}
	if len(pids) != n+1 {
		t.Fatalf("%d processes instead of %d", len(pids), n+1)
	}
	return pids
}

func tree(id, pid uint32) enforce.NodeSpec {
	s := enforce.NodeSpec{ID: id, Kind: enforce.KindTree, Subject: uint64(pid)}
	s.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = 1e6
	return s
}

// whose lists the members of each node, in sorted order.
func whose(t *testing.T, k *Kernel) map[uint32][]uint32 {
	t.Helper()
	tasks, err := k.obj.ListTasks()
	if err != nil {
		t.Fatal(err)
	}
	list := map[uint32][]uint32{}
	for _, r := range tasks {
		list[r.Node] = append(list[r.Node], r.Tgid)
	}
	for id := range list {
		slices.Sort(list[id])
		list[id] = slices.Compact(list[id])
	}
	return list
}

func TestFamilies(t *testing.T) {
	testutil.RequireRoot(t)
	k, err := Open(Options{PinDir: "/sys/fs/bpf/" + testutil.RunName() + "family", CgroupRoot: cgroupRoot(), Beside: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Down(); err != nil {
			t.Error(err)
		}
	})
	set := func(id, pid uint32) {
		t.Helper()
		if err := k.SetNode(tree(id, pid)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(id uint32, want []uint32) {
		t.Helper()
		want = slices.Clone(want)
		slices.Sort(want)
		if got := whose(t, k)[id]; !slices.Equal(got, want) {
			t.Errorf("node %d has %v instead of %v", id, got, want)
		}
	}
	processes := func(id uint32, want int) {
		t.Helper()
		if s, _, err := k.Look(id); err != nil || s.Processes != want {
			t.Errorf("node %d has %d processes instead of %d (%v)", id, s.Processes, want, err)
		}
	}
	// A few processes are marked one by one, many by a look at all processes.
	for i, n := range []int{3, 40} {
		outer, inner := uint32(10*i+1), uint32(10*i+2)
		pids := family(t, n)
		set(outer, pids[0])
		check(outer, pids)
		processes(outer, n+1)
		set(inner, pids[1])
		check(inner, pids[1:2])
		check(outer, slices.Concat(pids[:1], pids[2:]))
		if err := k.RemoveNode(outer); err != nil {
			t.Fatal(err)
		}
		check(outer, nil)
		set(outer, pids[0]) // around the tree that exists already
		check(inner, pids[1:2])
		check(outer, slices.Concat(pids[:1], pids[2:]))
		processes(outer, n+1)
		if k.nodes[inner].Parent != outer {
			t.Errorf("the inner node's parent is %d", k.nodes[inner].Parent)
		}
		if err := k.RemoveNode(inner); err != nil {
			t.Fatal(err)
		}
		check(outer, pids)
	}
}
