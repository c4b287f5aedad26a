package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// containerID returns an id of Docker's format that no other run has.
func containerID(digit string) string {
	return fmt.Sprintf("%08x%s", os.Getpid(), strings.Repeat(digit, 56))
}

// nameContainer writes a container's name into the file where Docker keeps it.
func (s *stage) nameContainer(id, name string) {
	s.t.Helper()
	s.do(func() error {
		dir := filepath.Join("/var/lib/docker/containers", id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "config.v2.json"), fmt.Appendf(nil, `{"ID":%q,"Name":"/%s"}`, id, name), 0o600)
	})
}

// containerCgroup makes the cgroup of a running container, as Docker does, and returns its folder.
func containerCgroup(t *testing.T, id string) string {
	t.Helper()
	parent, _ := cgroup(t, "docker")
	dir := filepath.Join(parent, "docker-"+id+".scope")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // otherwise its parent cannot be removed
	return dir
}

// floodOne connects to the address in its argument, and sends.
const floodOne = `
s = connect(sys.argv[1])
flood(s)
`

// netnice limits a container by its name, and then the next container with the same name. The engine's list and the
// cgroup have Docker's format.
func TestContainer(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	first, second := containerID("a"), containerID("b")
	f.nameContainer(first, "web")
	port := f.ports + 1
	dir := containerCgroup(t, first)
	one := f.python(options{in: f.A, cgroup: dir}, floodOne, f.to(port))
	f.holds("by name", f.must("set", "--container", "web", "--up", "5MB/s"), 5e6, port)
	if r := f.netnice("set", "--container", second, "--up", "5MB/s"); r.code == 0 || !strings.Contains(r.err, "no container is called") {
		t.Errorf("a container that does not run and has no name: %v", r)
	}

	one.close()
	if !eventually(3*time.Second, func() bool { return os.Remove(dir) == nil }) {
		t.Fatalf("the cgroup %s cannot be removed", dir)
	}
	f.nameContainer(first, "old")
	f.nameContainer(second, "web")
	f.python(options{in: f.A, cgroup: containerCgroup(t, second)}, floodOne, f.to(port+1))
	f.assertWithin("the next is found", 2*time.Second, func() bool { return f.nodes()["container:web"].Processes == 1 })
	f.holds("what has the name next", testbed.Now(), 5e6, port+1)
	f.free("lifted, by id", f.must("unset", "--container", second[:12]), 50e6, port+1)
}

// A rule limits the programs in containers whose names match its pattern, each container by itself. The test has one
// container that runs already, and one that starts later. Programs in another container, or in none, have no limit.
func TestRuleContainer(t *testing.T) {
	t.Parallel()
	r := newRuled(t, "")
	first, other, later := containerID("c"), containerID("d"), containerID("e")
	r.nameContainer(first, "web-1")
	r.nameContainer(other, "db")
	p := r.ports
	x := r.python(options{in: r.A, cgroup: containerCgroup(t, first)}, floodOne, r.to(p+1))
	y := r.python(options{in: r.A, cgroup: containerCgroup(t, other)}, floodOne, r.to(p+2))
	z := r.python(options{in: r.A}, floodOne, r.to(p+3))
	r.write("[[rule]]\nname = 'web'\ncontainer = 'web-*'\nup = '2MB/s'\n")
	at := r.must("rules", "reload")
	r.holds("in a container that matches", at, 2e6, p+1)
	r.free("in another container, and in none", at, freely, p+2, p+3)
	for _, s := range []*script{y, z} {
		if n := r.nodeOf(s.pid()); n != nil {
			t.Errorf("a process that the rule does not name has the limit %+v", n)
		}
		s.close()
	}

	r.nameContainer(later, "web-2")
	next := r.python(options{in: r.A, cgroup: containerCgroup(t, later)}, floodOne, r.to(p+4))
	t.Logf("in force %v after exec", r.afterExec(next.pid()))
	r.holds("in one that is started later", testbed.Now(), 2e6, p+4)
	for _, s := range []*script{x, next} {
		n := r.nodeOf(s.pid())
		if n == nil || len(n.Limits) != 1 || n.Limits[0].BytesPerSec != 2e6 || n.Limits[0].Rule == nil || n.Limits[0].Rule.Name != "web" {
			t.Errorf("the limit of a container's process is shown as %+v", n)
		}
	}
	if got := r.netnice("rules", "test", next.pid()); got.code != 0 || !strings.Contains(got.out, "web-2") {
		t.Errorf("rules test of a process in a container: %v", got)
	}
}

// A user makes a cgroup that is called like a container or unit which starts anew. The limit by name is the machine's
// again as soon as that is there.
func TestUsersCgroupOfAContainersName(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestContainer and internal/identity TestCgroupOfItsNameInUsersSubtree")
	t.Parallel()
	uid := newUsers()
	for _, c := range []struct{ option, format string }{
		{"--container", "lxc.payload.%s"}, {"--container", "machine-%s.scope"}, {"--unit", "%s.service"},
	} {
		t.Run(fmt.Sprintf(c.format, "X"), func(t *testing.T) {
			t.Parallel()
			f := newField(upStage(t))
			port := f.ports + 1
			name := testutil.RunName() + itoa(uid) + strings.Trim(c.format[:3], "%.")
			id := name
			if c.option == "--unit" {
				id += ".service"
			}
			engine, _ := cgroup(t, "engine")
			machines := filepath.Join(engine, fmt.Sprintf(c.format, name))
			own, _ := cgroup(t, "own")
			users := filepath.Join(own, fmt.Sprintf(c.format, name))
			start := func() *script {
				if err := os.Mkdir(machines, 0o755); err != nil {
					t.Fatal(err)
				}
				return f.python(options{in: f.A, cgroup: machines}, floodOne, f.to(port))
			}
			t.Cleanup(func() { _, _ = os.Remove(machines), os.Remove(users) })
			x := start()
			f.holds("by name", f.must("set", c.option, name, "--up", "5MB/s"), 5e6, port)
			x.close()
			if !eventually(3*time.Second, func() bool { return os.Remove(machines) == nil }) {
				t.Fatalf("the cgroup %s cannot be removed", machines)
			}
			for _, err := range []error{os.Mkdir(users, 0o755), os.Chown(own, int(uid), int(uid)), os.Chown(users, int(uid), int(uid))} {
				if err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second) // the daemon has looked for the name
			port++
			start()
			f.assertWithin("what has started anew is found", 2*time.Second, func() bool {
				n := f.nodes()
				return len(n) == 1 && n[strings.TrimPrefix(c.option, "--")+":"+id].Processes == 1
			})
			f.holds("after its restart", testbed.Now(), 5e6, port)
		})
	}
}
