package cpu

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A shell that calculates is one thread, and a Go program several.
func TestStrict(t *testing.T) {
	m := machine(t)
	several := spinner(t, 2)
	require.Eventually(t, func() bool {
		_, err := m.PolicyOf(several)
		return errors.Is(err, errNotAlone)
	}, 5*time.Second, 10*time.Millisecond)

	pid := started(t, exec.Command("nice", "-n", "7", "sh", "-c", "while :; do :; done"))
	require.Eventually(t, func() bool {
		attr, err := unix.SchedGetAttr(pid, 0)
		return err == nil && attr.Nice == 7
	}, 5*time.Second, 10*time.Millisecond)
	for range 2 * Online() {
		made(t, m, spinner(t, 1), Share{Weight: 9548}) // as of nice -10
	}
	was, err := m.PolicyOf(pid)
	require.NoError(t, err)
	require.Equal(t, Policy{Number: unix.SCHED_NORMAL, Nice: 7}, was)
	require.NoError(t, m.Strict(pid, Ceiling(30)))
	require.NoError(t, m.Strict(pid, Ceiling(40)), "again")
	_, err = m.PolicyOf(pid)
	require.ErrorContains(t, err, "a deadline of its own")
	time.Sleep(200 * time.Millisecond)
	got := percent(t, pid, 2*time.Second)
	t.Logf("n = 40 beside %d of nice -10: %.2f per cent", 2*Online(), got)
	require.InDelta(t, 40, got, 1.5)

	require.NoError(t, m.Loose(pid, was))
	require.NoError(t, m.Loose(pid, was), "again")
	now, err := m.PolicyOf(pid)
	require.NoError(t, err)
	require.Equal(t, was, now)
	require.Less(t, percent(t, pid, time.Second), 30.0, "it comes last again")
}
