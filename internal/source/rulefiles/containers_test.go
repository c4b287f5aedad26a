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

	"github.com/netnice/netnice/internal/identity"
)

// The source reads the container engine's files without the lock on the rules.
func TestContainersAreLookedUpWithoutTheRulesLock(t *testing.T) {
	const pid = 4242
	proc, lib := t.TempDir(), t.TempDir()
	write := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	write(filepath.Join(proc, "sys/kernel/random/boot_id"), "of the test\n")
	id := strings.Repeat("a", 64)
	group := "system.slice/docker-" + id + ".scope"
	written := filepath.Join(lib, "docker/containers", id, "config.v2.json")
	cgroups := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(cgroups, group), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Dir(written), 0o755))
	require.NoError(t, unix.Mkfifo(written, 0o600)) // a reader that opens it waits for a writer
	resolver, err := identity.New(identity.Options{Proc: proc, VarLib: lib, CgroupRoot: cgroups})
	require.NoError(t, err)
	c := newHarness(t, "[[rule]]\ncontainer = 'web'\nup = '1MB/s'\n", func(o *Options) { o.Resolver = resolver })
	process := filepath.Join(proc, fmt.Sprint(pid))
	write(filepath.Join(process, "comm"), "web\n")
	write(filepath.Join(process, "status"), "Name:\tweb\nPPid:\t1\nUid:\t0\t0\t0\t0\n")
	write(filepath.Join(process, "cgroup"), "0::/"+group+"\n")
	require.NoError(t, os.Symlink("/usr/bin/web", filepath.Join(process, "exe")))
	c.fake.Exec(pid)
	var writer *os.File
	c.eventually("it is looked up", func() (ok bool) {
		fd, err := unix.Open(written, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // fails while it has no reader
		if err == nil {
			writer = os.NewFile(uintptr(fd), written)
		}
		return err == nil
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
