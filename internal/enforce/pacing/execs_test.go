package pacing

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// thisTest is the path of this test program. Emulated machines have no other programs.
func thisTest(t *testing.T, env string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), env)
	return cmd
}

// openRules opens a kernel side for this test alone.
func openRules(t *testing.T) *Kernel {
	t.Helper()
	testutil.RequireRoot(t)
	k, err := Open(Options{PinDir: "/sys/fs/bpf/" + testutil.RunName() + "rules", CgroupRoot: cgroupRoot(), Beside: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Down(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// started waits for the exec event of a process.
func started(t *testing.T, k *Kernel, pid int) enforce.Exec {
	t.Helper()
	late := time.After(5 * time.Second)
	for {
		select {
		case e := <-k.Execs():
			if e.PID == pid {
				return e
			}
		case <-late:
			t.Fatalf("the exec of process %d was not told", pid)
		}
	}
}

func TestExecsAreTold(t *testing.T) {
	k := openRules(t)
	run := func() int {
		cmd := thisTest(t, napEnv+"=0s")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	for range 2 {
		if err := k.FollowExecs(true); err != nil {
			t.Fatal(err)
		}
		before := bpf.NowNS()
		e := started(t, k, run())
		if e.TimeNS < before || e.TimeNS > bpf.NowNS() || e.StartBoottimeNS == 0 {
			t.Errorf("told of %+v, asked at %d", e, before)
		}
		if err := k.FollowExecs(false); err != nil {
			t.Fatal(err)
		}
		if k.Attached()["exec"] {
			t.Error("attached still")
		}
		for len(k.Execs()) > 0 {
			<-k.Execs()
		}
		run()
		select {
		case e := <-k.Execs():
			t.Errorf("told of %+v, which nobody follows", e)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Processes that are not related become members of one node. A tree of one of them nests in it, whichever of the
// two came first.
func TestJoin(t *testing.T) {
	k := openRules(t)
	sleep := func() int {
		cmd := thisTest(t, napEnv+"=1m")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	limit := func(id uint32, subject int) enforce.NodeSpec {
		s := enforce.NodeSpec{ID: id, Kind: enforce.KindTree, Subject: uint64(subject)}
		s.Ceilings[0][enforce.Up].BytesPerSec = 1e6
		return s
	}
	trees := func(pid int, want ...uint32) {
		t.Helper()
		if got := k.Trees(pid); !slices.Equal(got, want) {
			t.Errorf("process %d is in the trees %d, want %d", pid, got, want)
		}
	}
	a, b, c := sleep(), sleep(), sleep()
	must(k.SetNode(limit(1, a)))
	must(k.SetNode(limit(2, 0)))
	must(k.Join(2, a)) // around the process's own tree
	must(k.Join(2, b))
	trees(a, 1, 2)
	trees(b, 2)
	trees(c)
	must(k.SetNode(limit(3, b))) // inside node 2
	trees(b, 3, 2)
	must(k.Join(2, b)) // it is a member already
	trees(b, 3, 2)
	stats, err := k.Stats()
	must(err)
	for _, s := range stats {
		if s.ID == 2 && s.Processes != 2 {
			t.Errorf("%d processes in the node that was joined, want 2", s.Processes)
		}
	}
	// A second node to join nests inside.
	inner := limit(4, 0)
	inner.Parent = 2
	must(k.SetNode(inner))
	must(k.Join(4, a))
	trees(a, 1, 4, 2)
	// One process with a limit of its own leaves, and its limit goes with it. Another process has no tree around
	// the node.
	must(k.Join(2, c))
	must(k.SetNode(limit(5, c)))
	trees(c, 5, 2)
	must(k.Leave(5))
	trees(c, 5)
	must(k.Leave(1))
	trees(a, 1, 2)
	must(k.Leave(1))
	trees(a, 1)
	if err := k.Leave(1); err == nil {
		t.Error("a tree has left what it is not in")
	}
	must(k.RemoveNode(5))
	trees(c)
	must(k.Join(2, a))
	must(k.Join(4, a))
	trees(a, 1, 4, 2)
	must(k.RemoveNode(2))
	trees(a, 1, 4)
	trees(b, 3)
	if err := k.Join(1, c); err == nil {
		t.Error("a process has joined the tree of another")
	}
	trees(c)
	// A process without a tree of its own leaves inside one that is made for that.
	must(k.SetNode(limit(6, 0)))
	must(k.Join(6, c))
	trees(c, 6)
	way := limit(7, 0)
	way.Parent = 6
	must(enforce.LeaveBy(k, way, c))
	trees(c)
}

// A child whose mark failed at the fork becomes a member at the next look.
func TestUnmarkedChild(t *testing.T) {
	k := openRules(t)
	parent := thisTest(t, napEnv+"=1m")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Process.Kill(); _ = parent.Wait() })
	spec := enforce.NodeSpec{ID: 1, Kind: enforce.KindTree, Subject: uint64(os.Getpid())}
	spec.Ceilings[0][enforce.Up].BytesPerSec = 1e9
	if err := k.SetNode(spec); err != nil {
		t.Fatal(err)
	}
	pid := parent.Process.Pid
	if got := k.Trees(pid); !slices.Equal(got, []uint32{1}) {
		t.Fatalf("a child is in the trees %d", got)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := k.obj.Tasks.Delete(uint32(pidfd)); err != nil {
		t.Fatal(err)
	}
	if got := k.Trees(pid); len(got) != 0 {
		t.Fatalf("without its mark it is in the trees %d", got)
	}
	if err := k.Maintain(); err != nil {
		t.Fatal(err)
	}
	if got := k.Trees(pid); len(got) != 0 {
		t.Fatalf("no fork has failed: it is in the trees %d", got)
	}
	at := uint32(slices.Index(bpf.FaultNames(), bpf.FaultTaskStorage))
	counts := make([]uint64, ebpf.MustPossibleCPU())
	counts[0] = 1
	if err := k.obj.Faults.Put(at, counts); err != nil {
		t.Fatal(err)
	}
	if err := k.Maintain(); err != nil {
		t.Fatal(err)
	}
	if got := k.Trees(pid); !slices.Equal(got, []uint32{1}) {
		t.Errorf("after a fork has failed it is in the trees %d", got)
	}
}
