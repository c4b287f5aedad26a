package cli

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/client/clienttest"
	"github.com/netnice/netnice/internal/doctor"
)

// A report names a daemon without CAP_NET_RAW, and no other process without it.
func TestDaemonChecks(t *testing.T) {
	a, _ := testApp()
	a.socket, a.proc = socketPath(t), t.TempDir()
	require.Empty(t, a.daemonChecks(t.Context()), "there is none")

	l, err := net.Listen("unix", a.socket)
	require.NoError(t, err)
	served := clienttest.New()
	served.SetPID(12)
	server := &http.Server{Handler: served, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	require.Empty(t, a.daemonChecks(t.Context()), "of another pid namespace")

	write := func(name, text string) {
		path := filepath.Join(a.proc, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	status := func(name string, effective uint64) {
		write("12/status", fmt.Sprintf("Name:\t%s\nCapEff:\t%016x\n", name, effective))
	}
	write("sys/net/ipv4/ping_group_range", "1\t0\n")
	status("sh", 0)
	require.Empty(t, a.daemonChecks(t.Context()), "a process that has the number by chance")

	status("netnice", 0x1ffffffffff)
	checks := a.daemonChecks(t.Context())
	require.Len(t, checks, 1)
	require.Equal(t, doctor.OK, checks[0].State)

	status("netnice", 0x1ffffffffff&^(1<<13))
	checks = a.daemonChecks(t.Context())
	require.Len(t, checks, 1)
	require.Equal(t, doctor.Degraded, checks[0].State)
	require.Equal(t, "process 12 runs without CAP_NET_RAW", checks[0].Found)
	require.Contains(t, checks[0].Means, `"1 0"`)
}
