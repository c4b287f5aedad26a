package scope

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// systemd is a service manager that runs, or not, and is asked for nothing.
type systemd struct {
	identity.Systemd
	runs bool
}

func (s systemd) Running() bool { return s.runs }

// A scope of systemd's is in the outermost slice's folder of its process, another one in netnice's folder.
func TestPlace(t *testing.T) {
	proc, cgroups := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(proc, "7"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "7", "cgroup"), []byte("0::/user.slice/user-5.slice/session-1.scope\n"), 0o600))
	of := identity.Resolved{Subject: identity.PIDSubject(7), Kind: enforce.KindTree, Key: 7, StartBoottimeNS: 3, UID: 5, Name: "sleep"}
	for runs, dir := range map[bool]string{true: "user.slice/user-5.slice/run-netnice-7.scope", false: "netnice/run-7"} {
		resolver, err := identity.New(identity.Options{Proc: proc, CgroupRoot: cgroups, Systemd: systemd{runs: runs}})
		require.NoError(t, err)
		place, err := New(Options{Resolver: resolver, Folder: "netnice"}).Place(of)
		require.NoError(t, err)
		require.Equal(t, identity.Resolved{
			Subject: api.Subject{Kind: api.KindPID, ID: "7"}, Kind: enforce.KindCgroup, Key: 7, Name: "sleep", Dir: filepath.Join(cgroups, dir),
		}, place)
	}
}

// The umask of the service shuts out others; programs in a scope read its files all the same.
func TestScopesAreReadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	defer unix.Umask(unix.Umask(0o077))
	for range 2 { // it may exist already
		require.NoError(t, makeCgroup(dir))
		st, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), st.Mode().Perm())
	}
}
