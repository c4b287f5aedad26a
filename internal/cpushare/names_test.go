package cpushare

import (
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A program that ends before any reading gets its name at its end.
func TestPowerOfAShortProgram(t *testing.T) {
	h := newHarness(t)
	proc := exec.Command("sh", "-c", "read line; exec sleep 60")
	in, err := proc.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, proc.Start())
	t.Cleanup(func() { end(proc) })
	h.mustPower(root, proc.Process.Pid, 30)
	h.mu.Lock()
	p := h.list[proc.Process.Pid]
	h.mu.Unlock()
	_, err = io.WriteString(in, "\n") // it becomes sleep, as netnice exec becomes its command
	require.NoError(t, err)
	const soon, poll = 5 * time.Second, 2 * time.Millisecond
	require.Eventually(t, func() bool {
		name, ok := h.resolver.LastName(p.PID, p.StartNS)
		return ok && name == "sleep"
	}, soon, poll)
	require.NoError(t, proc.Process.Kill())
	require.Eventually(t, p.watch.HasEnded, soon, poll)
	end(proc)
	require.Equal(t, "sleep", h.Shown()[0].Name)
}
