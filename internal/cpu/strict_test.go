package cpu

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

// A shell that calculates has one thread, and a Go program has several.
func TestStrict(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestStrictRunsAtOnce")
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
		made(t, m, spinner(t, 1), Share{Weight: 9548}) // the weight of nice -10
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

// A process that has used up its quota when it gets its deadline still runs by the deadline.
func TestStrictRunsAtOnce(t *testing.T) {
	m := machine(t)
	pid := started(t, exec.Command("sh", "-c", "while :; do :; done"))
	for range 2 * Online() {
		spinner(t, 1)
	}
	few, more := Ceiling(20), Ceiling(60)
	few.Weight, more.Weight = MostWeight, MostWeight
	g := made(t, m, pid, few)
	for i := range 30 {
		require.NoError(t, m.Set(t.Context(), g, more))
		require.NoError(t, m.Strict(pid, more))
		require.Greater(t, percent(t, pid, 60*time.Millisecond), 10.0, "time %d", i)
		require.NoError(t, m.Set(t.Context(), g, few))
		require.NoError(t, m.Loose(pid, Policy{}))
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
	}
}
