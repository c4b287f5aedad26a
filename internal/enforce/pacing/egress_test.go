package pacing

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// cgroupTree is a set of cgroups. The test's own process, which is limited, moves among them.
type cgroupTree struct {
	t    *testing.T
	root string
	k    *Kernel
}

var egressPins = "/sys/fs/bpf/" + testutil.RunName() + "egress"

func newCgroupTree(t *testing.T) *cgroupTree {
	t.Helper()
	testutil.RequireRoot(t)
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, home, _ := strings.Cut(string(text), "0::")
	home, _, _ = strings.Cut(home, "\n")
	g := &cgroupTree{t: t, root: filepath.Join(cgroupRoot(), testutil.RunName()+"cgroupTree")}
	for _, dir := range []string{"", "a", "a/b", "a/c", "d"} {
		if err := os.Mkdir(filepath.Join(g.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := os.Remove(filepath.Join(g.root, dir))
			for range 100 {
				if err == nil || os.IsNotExist(err) {
					return
				}
				time.Sleep(10 * time.Millisecond)
				err = os.Remove(filepath.Join(g.root, dir))
			}
			t.Error(err)
		})
	}
	t.Cleanup(func() { g.enter(filepath.Join(cgroupRoot(), home)) })
	g.open()
	t.Cleanup(func() {
		if err := g.k.Down(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *cgroupTree) open() {
	g.t.Helper()
	var err error
	if g.k, err = Open(Options{PinDir: egressPins, CgroupRoot: cgroupRoot(), Beside: true}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *cgroupTree) enter(dir string) {
	g.t.Helper()
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(g.root, dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		g.t.Fatal(err)
	}
}

func (g *cgroupTree) set(s enforce.NodeSpec) {
	g.t.Helper()
	if err := g.k.SetNode(s); err != nil {
		g.t.Fatal(err)
	}
}

// self is a limit on this test's own process.
func self() enforce.NodeSpec { return tree(1, uint32(os.Getpid())) }

// is checks that the egress program is on a cgroup ("/": the root), and that the policy names the same cgroup.
func (g *cgroupTree) is(what, dir string) {
	g.t.Helper()
	want := filepath.Join(g.root, dir)
	if dir == rootCgroup {
		want = cgroupRoot()
	}
	id := inode(g.t, want)
	on, cover := g.on(linkName), g.told()
	if dir == rootCgroup && cover == 0 {
		cover = id
	}
	if on != id || cover != id {
		g.t.Errorf("%s: on the cgroup %d, told %d, want %d (%s)", what, on, cover, id, dir)
	}
	if _, err := os.Stat(filepath.Join(egressPins, movedName)); err == nil {
		g.t.Errorf("%s: a second link is left", what)
	}
}

const (
	linkName  = "link_egress"
	movedName = "link_egress_moved"
)

// on returns the cgroup that a pinned link is on.
func (g *cgroupTree) on(pin string) uint64 {
	g.t.Helper()
	l, err := link.LoadPinnedLink(filepath.Join(egressPins, pin), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		g.t.Fatal(err)
	}
	return info.Cgroup().CgroupId
}

func (g *cgroupTree) told() uint64 {
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	return g.k.cover.id
}

func inode(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// soon repeats the check of is for a while. It is for the effects of an event whose sender did not wait.
func (g *cgroupTree) soon(what, dir string) {
	g.t.Helper()
	for range 100 {
		if g.told() == inode(g.t, filepath.Join(g.root, dir)) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	g.is(what, dir)
}

// listen makes a listening socket.
func (g *cgroupTree) listen() {
	g.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = l.Close() })
}

func TestEgressFollowsSockets(t *testing.T) {
	g := newCgroupTree(t)
	g.enter("a/b")
	g.set(self())
	g.is("a process", "a/b")
	g.listen()
	g.is("a socket", "a/b")
	g.enter("a/c")
	g.is("it moves", "a/b")
	g.listen()
	g.soon("and makes a socket", "a")
	g.enter("d")
	g.listen()
	g.soon("again", "")
	// The hook has to be where the sockets are from the beginning.
	g.k.mu.Lock()
	g.k.cover.stale = true
	g.k.mu.Unlock()
	if err := g.k.Maintain(); err != nil {
		t.Fatal(err)
	}
	g.is("looked at anew", "")
}

func TestEgressOfOtherKinds(t *testing.T) {
	g := newCgroupTree(t)
	g.enter("a/b")
	g.set(self())
	other := self()
	for i, c := range []struct {
		what string
		kind enforce.Kind
		key  uint64
		want string
	}{
		{"a cgroup inside", enforce.KindCgroup, inode(t, filepath.Join(g.root, "a/b")), "a/b"},
		{"a cgroup beside", enforce.KindCgroup, inode(t, filepath.Join(g.root, "a/c")), "a"},
		{"a user", enforce.KindUser, 1_234_567_890, rootCgroup},
		{"a cgroup that is gone", enforce.KindCgroup, 1 << 60, rootCgroup},
	} {
		other.ID, other.Kind, other.Subject = uint32(i+2), c.kind, c.key
		g.set(other)
		g.is(c.what, c.want)
		if err := g.k.RemoveNode(other.ID); err != nil {
			t.Fatal(err)
		}
		if err := g.k.Maintain(); err != nil {
			t.Fatal(err)
		}
		g.is(c.what+", lifted", "a/b")
	}
}

// The cgroup is removed and made again, as a service's cgroup is when the service restarts.
func TestEgressOfRemovedCgroup(t *testing.T) {
	g := newCgroupTree(t)
	g.enter("a/b")
	g.set(self())
	g.enter("a/c")
	dir := filepath.Join(g.root, "a/b")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g.enter("a/b")
	g.listen()
	g.soon("made again", "a/b")
}

func TestEgressWithoutDaemon(t *testing.T) {
	g := newCgroupTree(t)
	g.enter("a/b")
	g.set(self())
	if err := g.k.Close(); err != nil {
		t.Fatal(err)
	}
	if on := g.on(linkName); on != inode(t, cgroupRoot()) {
		t.Errorf("left on the cgroup %d, not on the root", on)
	}
	g.open()
	g.is("back", "a/b")

	// The previous daemon was killed while it moved the hook.
	l, err := link.AttachCgroup(link.CgroupOptions{
		Path: filepath.Join(g.root, "d"), Attach: ebpf.AttachCGroupInetEgress, Program: g.k.obj.NnEgress,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Pin(filepath.Join(egressPins, movedName)); err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // its pin keeps it
	if err := g.k.stopWaiting(); err != nil {
		t.Fatal(err)
	}
	if err := g.k.obj.Close(); err != nil {
		t.Fatal(err)
	}
	g.enter("a/c")
	g.open()
	g.is("killed while it moved", "a/c")
	found, err := link.QueryPrograms(link.QueryOptions{Target: dirFD(t, filepath.Join(g.root, "d")), Attach: ebpf.AttachCGroupInetEgress})
	if err != nil || len(found.Programs) > 0 {
		t.Errorf("programs left on the other cgroup: %v, %v", found, err)
	}
}

func dirFD(t *testing.T, dir string) int {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}
