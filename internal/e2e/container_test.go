package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// A container is limited by its name, and so is the one that has the name after
// it. Its engine's list and its cgroup are as Docker makes them.
func TestContainer(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	id := func(digit string) string {
		return fmt.Sprintf("%08x%s", os.Getpid(), strings.Repeat(digit, 56))
	}
	named := func(id, name string) {
		f.do(func() error {
			dir := filepath.Join("/var/lib/docker/containers", id)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "config.v2.json"), fmt.Appendf(nil, `{"ID":%q,"Name":"/%s"}`, id, name), 0o600)
		})
	}
	runs := func(id string) string {
		parent, _ := cgroup(t, "docker")
		dir := filepath.Join(parent, "docker-"+id+".scope")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // or its parent cannot be removed
		return dir
	}
	const text = `
s = connect(sys.argv[1])
flood(s)
`
	first, second := id("a"), id("b")
	named(first, "web")
	port := f.ports + 1
	dir := runs(first)
	one := f.python(options{in: f.A, cgroup: dir}, text, f.to(port))
	f.holds("by name", f.must("set", "--container", "web", "--up", "5MB/s"), 5e6, port)
	if r := f.netnice("set", "--container", second, "--up", "5MB/s"); r.code == 0 || !strings.Contains(r.err, "no container is called") {
		t.Errorf("a container that does not run and has no name: %v", r)
	}

	one.close()
	if !within(3*time.Second, func() bool { return os.Remove(dir) == nil }) {
		t.Fatalf("the cgroup %s cannot be removed", dir)
	}
	named(first, "old")
	named(second, "web")
	f.python(options{in: f.A, cgroup: runs(second)}, text, f.to(port+1))
	f.soon("the next is found", 2*time.Second, func() bool { return f.nodes()["container:web"].Processes == 1 })
	f.holds("what has the name next", testutil.Now(), 5e6, port+1)
	f.free("lifted, by id", f.must("unset", "--container", second[:12]), 50e6, port+1)
}
