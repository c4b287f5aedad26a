package rulefiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// hungEngine is a machine with a process, web, in a container whose engine does not answer for its name.
type hungEngine struct {
	resolver *identity.Resolver
	pid      int
	proc     string
	group    string
	file     string // of the engine's: who opens it waits for a writer
}

func newHungEngine(t *testing.T) *hungEngine {
	t.Helper()
	id := strings.Repeat("a", 64)
	e := &hungEngine{pid: 4242, proc: t.TempDir(), group: "system.slice/docker-" + id + ".scope"}
	lib, cgroups := t.TempDir(), t.TempDir()
	e.write(t, "sys/kernel/random/boot_id", "of the test\n")
	require.NoError(t, os.MkdirAll(filepath.Join(cgroups, e.group), 0o755))
	e.file = filepath.Join(lib, "docker/containers", id, "config.v2.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(e.file), 0o755))
	require.NoError(t, unix.Mkfifo(e.file, 0o600))
	var err error
	e.resolver, err = identity.New(identity.Options{Proc: e.proc, VarLib: lib, CgroupRoot: cgroups})
	require.NoError(t, err)
	return e
}

// write makes a file of /proc.
func (e *hungEngine) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(e.proc, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// begin starts the process.
func (e *hungEngine) begin(t *testing.T) {
	t.Helper()
	dir := fmt.Sprint(e.pid)
	e.write(t, dir+"/comm", "web\n")
	e.write(t, dir+"/status", fmt.Sprintf("Name:\tweb\nTgid:\t%d\nPPid:\t1\nUid:\t0\t0\t0\t0\n", e.pid))
	e.write(t, dir+"/stat", fmt.Sprintf("%d (web) S%s\n", e.pid, strings.Repeat(" 1", 49)))
	e.write(t, dir+"/cgroup", "0::/"+e.group+"\n")
	require.NoError(t, os.Symlink("/usr/bin/web", filepath.Join(e.proc, dir, "exe")))
}

// answer opens the engine's file for those who wait for it, and returns nil if nobody does. It answers when it is closed.
func (e *hungEngine) answer() *os.File {
	fd, err := unix.Open(e.file, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), e.file)
}

// The source reads the container engine's files without the lock on the rules.
func TestContainersAreLookedUpWithoutTheRulesLock(t *testing.T) {
	e := newHungEngine(t)
	c := newHarness(t, "[[rule]]\ncontainer = 'web'\nup = '1MB/s'\n", func(o *Options) { o.Resolver = e.resolver })
	e.begin(t)
	c.fake.Exec(e.pid)
	var writer *os.File
	c.eventually("it is looked up", func() bool {
		writer = e.answer()
		return writer != nil
	})
	listed := make(chan struct{})
	go func() {
		c.List(root)
		close(listed)
	}()
	select {
	case <-listed:
	case <-time.After(soon):
		t.Error("a list of the rules waits for an engine")
	}
	require.NoError(t, writer.Close())
}

// While no rule names a container, no rule waits for an engine, neither after an exec nor in a look at all processes.
func TestContainersAreNotLookedUpForOtherRules(t *testing.T) {
	e := newHungEngine(t)
	c := newHarness(t, rule("web", "up = '1MB/s'"), func(o *Options) { o.Resolver = e.resolver })
	t.Cleanup(func() { // for a source that waits
		if writer := e.answer(); writer != nil {
			_ = writer.Close()
		}
	})
	e.begin(t)
	c.fake.Exec(e.pid)
	c.eventually("the rule holds after the exec", func() bool { return c.limit(e.pid) == 1e6 })
	c.Write(rule("web", "up = '2MB/s'"))
	c.eventually("another rate holds after a look", func() bool { return c.limit(e.pid) == 2e6 })
	facts := c.requests(e.pid).Owners[enforce.OwnerAdmin].Facts
	require.Equal(t, "/"+e.group, facts.Group)
	require.Empty(t, facts.In)
}
