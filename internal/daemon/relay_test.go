package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// containerOf makes a container of a rootless engine, with a relay in its network namespace: the cgroup of process 10
// and a /proc that shows both. It returns the container's id.
func containerOf(t *testing.T, opts *Options) (id string) {
	t.Helper()
	id = strings.Repeat("c", 64)
	proc := t.TempDir()
	write := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write(filepath.Join(proc, "sys/kernel/random/boot_id"), "00000000-0000-4000-8000-000000000000\n")
	for pid, p := range map[string]struct{ netns, exe string }{"1": {"1", "/sbin/init"}, "10": {"5", "/bin/web"}, "20": {"5", "/usr/libexec/podman/rootlessport"}} {
		write(filepath.Join(proc, pid, "comm"), filepath.Base(p.exe)+"\n")
		require.NoError(t, os.Symlink(p.exe, filepath.Join(proc, pid, "exe")))
		require.NoError(t, os.Mkdir(filepath.Join(proc, pid, "ns"), 0o755))
		require.NoError(t, os.Symlink("net:["+p.netns+"]", filepath.Join(proc, pid, "ns/net")))
	}
	write(filepath.Join(opts.Identity.CgroupRoot, "user.slice/libpod-"+id+".scope/cgroup.procs"), "10\n")
	write(filepath.Join(opts.Identity.CgroupRoot, "user.slice/podman.scope/cgroup.procs"), "20\n")
	opts.Identity.Proc, opts.Identity.VarLib = proc, t.TempDir()
	return id
}

// The answer to a limit on a container of a rootless engine says which traffic the limit does not count, and which it
// does.
func TestPublishedPortsAreNotCounted(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	id := containerOf(t, &opts)
	h := start(t, fake, opts)
	const come = "connections to its published ports come by the loopback device inside, from rootlessport (pid 20), and are not counted"
	warnings := func(subject string, w api.Wish) []string {
		t.Helper()
		answer, err := h.set(root, subject, w)
		require.NoError(t, err)
		return answer.Warnings
	}
	container := "container:" + id[:12]
	require.Equal(t, []string{come + ": --loopback limits what is sent there, too"}, warnings(container, up(2e6)))
	require.Equal(t, []string{come + ": --loopback limits what is sent there, too; no limit counts what is received there"},
		warnings(container, api.Wish{TotalBytesPerSec: ptr[uint64](3e6)}))
	require.Empty(t, warnings(container, api.Wish{UpBytesPerSec: ptr[uint64](1e6), Loopback: ptr(true)}), "it is counted")
	require.Empty(t, warnings(container, up(2e6)), "still")
	require.Empty(t, warnings(container, api.Wish{UpBytesPerSec: ptr[uint64](0), TotalBytesPerSec: ptr[uint64](0)}), "no limit is left")

	cgroup := "cgroup:user.slice/libpod-" + id + ".scope"
	require.Equal(t, []string{come + "; no limit counts what is received there"}, warnings(cgroup, api.Wish{DownBytesPerSec: ptr[uint64](2e6)}))
	require.Empty(t, warnings("cgroup:user.slice", up(2e6)), "the relay is in it, and charged")
}
