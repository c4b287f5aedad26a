package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestDaemonPrivileges(t *testing.T) {
	const all = ^uint64(0)
	c := daemonPrivileges(12, all, "1\t0\n")
	require.Equal(t, OK, c.State)
	require.Empty(t, c.Means+c.Remedy)

	c = daemonPrivileges(12, all&^(1<<unix.CAP_NET_RAW), "1\t0")
	require.Equal(t, Degraded, c.State)
	require.Equal(t, "process 12 runs without CAP_NET_RAW", c.Found)
	require.Contains(t, c.Means, `ICMP alone are not followed`)
	require.Contains(t, c.Means, "ping_group_range")
	require.Contains(t, c.Remedy, "CapabilityBoundingSet")

	c = daemonPrivileges(12, all&^(1<<unix.CAP_NET_RAW), "0\t2147483647")
	require.Contains(t, c.Means, "ICMP echo alone")

	c = daemonPrivileges(12, 0, "")
	require.Contains(t, c.Found, "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN")
	require.Contains(t, c.Means, "No program is loaded. ")
}
