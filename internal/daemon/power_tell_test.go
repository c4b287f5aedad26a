package daemon

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// Changes of CPU shares are published like changes of limits, and the shares are listed with the limits.
func TestEventsOfPowers(t *testing.T) {
	h, _ := powerHarness(t)
	proc := sleeper(t)
	pid := proc.Process.Pid
	all, other := h.hear(root), h.hear(auth.Actor{UID: uint32(os.Getuid()) + 77})
	h.mustPower(root, pid, 30)
	h.mustPower(root, pid, 30) // unchanged
	h.mustPower(root, pid, 40)
	_, err := h.SetPower(context.Background(), root, api.PowerRequest{PID: pid, Power: 50, DryRun: true})
	require.NoError(t, err)

	list, err := h.Nodes(context.Background(), root)
	require.NoError(t, err)
	require.Len(t, list.Powers, 1)
	require.Equal(t, 40, list.Powers[0].Power)
	h.mustSet(root, pidSubject(proc), up(1e6))
	one, err := h.nodesFor(pidSubject(proc))
	require.NoError(t, err)
	require.Len(t, one, 1)
	_, err = h.remove(root, pidSubject(proc))
	require.NoError(t, err)

	_, err = h.power(root, pid, 0)
	require.NoError(t, err)
	h.mustPower(root, pid, 20)
	end(proc)
	h.lookAtPowers(context.Background())
	h.eventually("it ends", func() bool { return all.last(api.EventPowerEnded).PID == pid })

	require.Equal(t, "hello power_set power_changed limit_set limit_lifted power_lifted power_set power_ended", strings.Join(all.types(), " "))
	require.Equal(t, []string{"hello"}, other.types(), "another user's are nobody's business")
	changed := all.last(api.EventPowerChanged)
	require.Equal(t, pidSubject(proc), changed.Subject.String())
	require.Equal(t, "admin", changed.By)
	require.Equal(t, 40, changed.Power.Power)
	require.Equal(t, 40, all.last(api.EventPowerLifted).Power.Power, "as it was")
	require.Equal(t, 20, all.last(api.EventPowerEnded).Power.Power)
}
