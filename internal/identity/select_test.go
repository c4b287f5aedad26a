package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process inside another one that the pattern means needs no limit of its own, however far below it is. Processes of
// other users are only counted.
func TestSelect(t *testing.T) {
	all := []ProcessInfo{
		{PID: 1, Comm: "init"},
		{PID: 20, Parent: 1, Comm: "curl", UID: 7},
		{PID: 30, Parent: 20, Comm: "sh", UID: 7},
		{PID: 40, Parent: 30, Comm: "curl", UID: 7},
		{PID: 15, Parent: 1, Comm: "curl", UID: 7},
		{PID: 50, Parent: 1, Comm: "curl", UID: 8},
		{PID: 60, Parent: 50, Comm: "curl", UID: 7},
	}
	curl := func(p ProcessInfo) bool { return p.Comm == "curl" }
	require.Equal(t, Selected{Outermost: []int{15, 20, 60}, Inner: []int{40}, Others: 1}, Select(all, curl, func(uid uint32) bool { return uid == 7 }))
	require.Equal(t, Selected{Outermost: []int{15, 20, 50}, Inner: []int{40, 60}}, Select(all, curl, func(uint32) bool { return true }))
	require.Equal(t, Selected{Others: 5}, Select(all, curl, func(uint32) bool { return false }))

	// The list is no snapshot: a parent may have ended, and a descendant may have its id.
	loop := []ProcessInfo{{PID: 5, Parent: 6}, {PID: 6, Parent: 5}, {PID: 9, Parent: 4, Comm: "curl"}}
	require.Equal(t, Selected{Outermost: []int{9}}, Select(loop, curl, func(uint32) bool { return true }))
	five := func(p ProcessInfo) bool { return p.PID == 5 }
	require.Equal(t, Selected{Inner: []int{5}}, Select(loop, five, func(uint32) bool { return true }), "the search ends")
}

func TestProgramNames(t *testing.T) {
	cut := ProcessInfo{Path: "/usr/bin/a-long-program-name", Comm: "a-long-program-"}
	require.True(t, cut.IsCut())
	require.False(t, ProcessInfo{Comm: "a-long-program-"}.IsCut(), "its file is not known")
	require.Equal(t, []string{"a-long-program-name", "kworker", "python3", "tool.py"}, ProgramNames([]ProcessInfo{
		cut, {Path: "/usr/bin/python3", Comm: "tool.py"}, {Comm: "kworker"},
	}))
}

// A process is in a unit's cgroup, or below it, in cgroup v1 or v2.
func TestInUnit(t *testing.T) {
	proc := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(proc, "7"), 0o755))
	in := func(cgroups string) bool {
		require.NoError(t, os.WriteFile(filepath.Join(proc, "7", "cgroup"), []byte(cgroups), 0o644))
		return InUnit(proc, 7, "netnice.service")
	}
	require.True(t, in("0::/system.slice/netnice.service\n"))
	require.True(t, in("1:name=systemd:/system.slice/netnice.service/sub\n0::/\n"))
	require.False(t, in("0::/user.slice/session-1.scope\n"))
	require.False(t, InUnit(proc, 8, "netnice.service"), "the process has ended")
}
