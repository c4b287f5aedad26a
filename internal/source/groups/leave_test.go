package groups

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// Members leave a group and keep their other limits; the group ends with its last one.
func TestMembersLeave(t *testing.T) {
	h := newHarness(t)
	a, b, c := h.process(0), h.process(0), h.process(0)
	own := h.limited(b)
	_, err := h.set(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0), memberOf(c, 300))
	require.NoError(t, err)
	_, err = h.leave(root, "h", a)
	require.Contains(t, testutil.RequireFault(t, api.CodeNotFound, err).Message, "is no member of group:h")
	_, err = h.leave(root, "", a, h.process(0))
	require.Contains(t, testutil.RequireFault(t, api.CodeNotFound, err).Message, "is no member of a group")
	require.Len(t, h.weights(), 3, "none leaves if one is no member")

	answer, err := h.leave(root, "", a, b, a)
	require.NoError(t, err)
	require.Equal(t, []api.Left{{PID: a, Group: "g"}, {PID: b, Group: "g"}}, answer.Left, "one is named twice")
	require.Equal(t, map[int]uint32{c: 300}, h.weights())
	require.Equal(t, 1, h.drained, "only the last request has lifted something")
	require.Zero(t, h.Find(h.processes[fmt.Sprint(a)]).ID)
	require.NotContains(t, h.kernel.Trees(b), h.FindName(api.Subject{Kind: api.KindGroup, ID: "g"}).ID)
	require.EqualValues(t, 1e6, h.Get(own).Requested[enforce.OwnerAdmin].Up)

	delete(h.processes, fmt.Sprint(c)) // its descendants live on
	_, err = h.leave(root, "g", c)
	require.NoError(t, err)
	require.Empty(t, h.limitedWithout(b, c), "the group has ended")
}

// A member that has left is back if the rest of the request fails.
func TestLeavingIsUndone(t *testing.T) {
	h := newHarness(t)
	a, b := h.process(0), h.process(0)
	_, err := h.set(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	group := h.FindName(api.Subject{Kind: api.KindGroup, ID: "g"}).ID
	h.kernel.Fail("RemoveNode", errors.New("no"))
	_, err = h.leave(root, "g", a, b)
	require.Error(t, err)
	require.Len(t, h.weights(), 2)
	require.Contains(t, h.kernel.Trees(a), group)

	// A daemon that was killed meanwhile has taken it out already.
	h.kernel.Fail("RemoveNode", nil)
	require.NoError(t, h.kernel.Leave(h.Find(h.processes[fmt.Sprint(a)]).ID))
	calls := h.kernel.Calls("Leave")
	_, err = h.leave(root, "g", a)
	require.NoError(t, err)
	require.Equal(t, calls, h.kernel.Calls("Leave"))
}

// A member inside another member leaves with that one, or not at all.
func TestMemberInsideAnother(t *testing.T) {
	h := newHarness(t)
	a, b := h.process(0), h.process(0)
	_, err := h.set(root, "g", up(10e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	id := func(pid int) uint32 { return h.Find(h.processes[fmt.Sprint(pid)]).ID }
	h.kernel.SetStats(enforce.NodeStats{ID: id(b), Parent: id(a), Processes: 1})
	_, err = h.leave(root, "", a, b)
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, fmt.Sprintf("pid:%d, which is around it", a))
	require.Zero(t, h.kernel.Calls("Leave"))
}

// Users take their own processes out of groups that are only theirs.
func TestUsersLeave(t *testing.T) {
	h := newHarness(t)
	a, b, admins := h.process(bob.UID), h.process(bob.UID), h.process(0)
	_, err := h.set(bob, "bobs", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	_, err = h.leave(auth.Actor{UID: 4243}, "", a)
	require.Contains(t, testutil.RequireFault(t, api.CodeDenied, err).Message, "belongs to another user")
	_, err = h.leave(bob, "", a)
	require.NoError(t, err)

	_, err = h.set(root, "bobs", up(5e5))
	require.NoError(t, err)
	_, err = h.leave(bob, "", b)
	fault := testutil.RequireFault(t, api.CodeDenied, err)
	require.Contains(t, fault.Message, "set by the administrator")
	require.Equal(t, fmt.Sprintf("sudo netnice fair --leave %d", b), fault.Hint)

	_, err = h.set(root, "admins", up(1e6), memberOf(admins, 0), memberOf(a, 0))
	require.NoError(t, err)
	for _, pid := range []int{admins, a} {
		_, err = h.leave(bob, "", pid)
		_ = testutil.RequireFault(t, api.CodeDenied, err)
	}
	_, err = h.leave(root, "", a, b)
	require.NoError(t, err)
}
