package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process survives if it has the number of an ended process of a run.
func TestKillOfRun(t *testing.T) {
	RequireRoot(t) // Supervise needs root, too
	const run = 1 << 30
	start := func(value int) (cmd *exec.Cmd, environ string) {
		t.Helper()
		cmd = exec.Command("sleep", "60")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", runVariable, value)) // the last value counts
		require.NoError(t, cmd.Start())
		environ = fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid)
		require.Eventually(t, func() bool { // during the exec it is empty
			text, err := os.ReadFile(environ)
			return err == nil && len(text) > 0
		}, 10*time.Second, time.Millisecond)
		return cmd, environ
	}
	of := func(n int) bool { return n == run }
	another, environ := start(run + 1)
	require.False(t, killOfRun(another.Process.Pid, environ, of))
	require.NoError(t, unix.Kill(another.Process.Pid, 0), "it lives")
	require.NoError(t, another.Process.Kill())
	require.Error(t, another.Wait())
	require.False(t, killOfRun(another.Process.Pid, environ, of), "it has ended")

	its, environ := start(run)
	require.True(t, killOfRun(its.Process.Pid, environ, of))
	require.EqualError(t, its.Wait(), "signal: killed")
}
