package cpu

import (
	"bufio"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The process that has waited for ended children knows their processor time.
func TestReaped(t *testing.T) {
	cmd := exec.Command("sh", "-c", `timeout 0.5 sh -c 'while :; do :; done'; echo ended; exec sleep 60`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	before := reaped(cmd.Process.Pid)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	used := time.Duration(reaped(cmd.Process.Pid) - before)
	require.Greater(t, used, 50*time.Millisecond, "of half a second, on a busy machine")
	require.Less(t, used, 700*time.Millisecond)
	require.Zero(t, reaped(1<<22+1), "there is none")
}
