package groups

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/testutil"
)

// A group has its members' weights. It can be changed, joined and lifted, and its members keep their own limits.
func TestMembersShare(t *testing.T) {
	h := newHarness(t)
	a, b, c := h.process(0), h.process(0), h.process(0)
	own := h.limited(b)
	_, err := h.set(root, "g", up(10e6), memberOf(a, 300), memberOf(b, 0))
	require.NoError(t, err)
	require.Equal(t, map[int]uint32{a: 300, b: 100}, h.weights())
	require.Equal(t, own, h.Find(h.processes[fmt.Sprint(b)]).ID, "a process has one node")
	require.Equal(t, 2, h.kernel.Calls("Join"))

	_, err = h.set(root, "g", api.Wish{}, memberOf(c, 1), memberOf(c, 7), memberOf(a, 0))
	require.NoError(t, err)
	require.Equal(t, map[int]uint32{a: 300, b: 100, c: 7}, h.weights(), "the last weight counts, and none leaves it as it is")
	require.Equal(t, 3, h.kernel.Calls("Join"), "who is in it does not join again")

	_, err = h.set(root, "g", up(0))
	require.NoError(t, err)
	require.Empty(t, h.weights())
	require.Equal(t, []uint32{own}, h.limitedWithout(a, c), "a weight that was not given ends with the group")
}

// limitedWithout lists the nodes, except those of some processes.
func (h *harness) limitedWithout(pids ...int) (ids []uint32) {
	for _, id := range slices.Sorted(maps.Keys(h.nodes)) {
		if !slices.Contains(pids, int(h.nodes[id].Key)) {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestRefused(t *testing.T) {
	h := newHarness(t)
	a, b := h.process(0), h.process(0)
	for name, c := range map[string]struct {
		by      auth.Actor
		group   string
		wish    api.Wish
		members []api.Member
		code    string
		says    string
	}{
		"nobody":           {root, "g", up(1e6), nil, api.CodeNotFound, "no group g"},
		"no rate":          {root, "g", api.Wish{}, []api.Member{memberOf(a, 0)}, api.CodeBadRequest, "needs a rate"},
		"a name":           {root, "a/b", up(1e6), []api.Member{memberOf(a, 0)}, api.CodeBadRequest, "no name"},
		"another's":        {bob, "g", up(1e6), []api.Member{memberOf(a, 0)}, api.CodeDenied, "another user"},
		"the machine":      {root, "g", up(1e6), []api.Member{{PID: 1}}, api.CodeBadRequest, "whole machine"},
		"a heavy member":   {root, "g", up(1e6), []api.Member{memberOf(a, 10001)}, api.CodeBadRequest, "weight"},
		"a dead process":   {root, "g", up(1e6), []api.Member{{PID: 1 << 22}}, api.CodeNotFound, "no process"},
		"users and weight": {bob, "g", up(1e6), []api.Member{memberOf(a, 200)}, api.CodeDenied, "weight"},
	} {
		_, err := h.set(c.by, c.group, c.wish, c.members...)
		require.Contains(t, testutil.RequireFault(t, c.code, err).Message, c.says, name)
	}
	require.Zero(t, h.kernel.Calls("SetNode"))

	_, err := h.set(root, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)
	_, err = h.set(root, "other", up(1e6), memberOf(a, 0))
	fault := testutil.RequireFault(t, api.CodeBadRequest, err)
	require.Contains(t, fault.Message, "is in group:g already")
	require.Contains(t, fault.Hint, fmt.Sprintf("netnice fair --leave %d", a))
	_, err = h.set(bob, "g", up(1e6), memberOf(b, 0))
	_ = testutil.RequireFault(t, api.CodeDenied, err)
	_, err = h.set(root, "g", up(0), memberOf(b, 0))
	require.Contains(t, testutil.RequireFault(t, api.CodeBadRequest, err).Message, "takes nobody in")
	require.Len(t, h.nodes, 2, "the group and its member")
}

// The remedy of who may not limit a member is the same command with more rights.
func TestRefusedMember(t *testing.T) {
	h := newHarness(t)
	pid := h.process(0)
	rate := uint64(1e6)
	_, err := h.set(bob, fmt.Sprintf("fair-%d", pid), api.Wish{TotalBytesPerSec: &rate}, memberOf(pid, 0))
	require.Equal(t, fmt.Sprintf("sudo netnice fair --total 1MB/s %d", pid), testutil.RequireFault(t, api.CodeDenied, err).Hint)
}

// A group is inside the tree that its first members are in, and takes in nobody from elsewhere.
func TestMembersAreInOneTree(t *testing.T) {
	h := newHarness(t)
	a, b, other := h.process(0), h.process(0), h.process(0)
	outer := h.limited(h.process(0))
	h.kernel.SetTrees(a, outer)
	h.kernel.SetTrees(b, outer)
	_, err := h.set(root, "g", up(1e6), memberOf(a, 0), memberOf(other, 0))
	require.Contains(t, testutil.RequireFault(t, api.CodeBadRequest, err).Message, "inside the limit of "+h.Get(outer).Subject.String())
	_, err = h.set(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	group := h.FindName(api.Subject{Kind: api.KindGroup, ID: "g"})
	require.Equal(t, outer, group.Outer)
	spec, _ := h.kernel.Spec(group.ID)
	require.Equal(t, outer, spec.Parent)
	_, err = h.set(root, "g", api.Wish{}, memberOf(a, 0), memberOf(other, 0))
	_ = testutil.RequireFault(t, api.CodeBadRequest, err)
	require.Len(t, h.weights(), 2)
}

// A quota counts the group and its members together.
func TestQuota(t *testing.T) {
	h := newHarness(t)
	h.quota = 3
	a, b, c := h.process(0), h.process(0), h.process(0)
	_, err := h.set(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0), memberOf(c, 0))
	_ = testutil.RequireFault(t, api.CodeConflict, err)
	require.Empty(t, h.nodes)
	h.limited(b)
	_, err = h.set(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0), memberOf(a, 0))
	require.NoError(t, err)
	require.Equal(t, [2]int{2, 2}, h.counted, "the group and a; b has a limit of the administrator's")
	_, err = h.set(root, "g", up(2e6), memberOf(a, 300))
	require.NoError(t, err)
	require.Zero(t, h.counted)
}

// A member joins although the same request finds no limit to lift.
func TestMemberJoinsWithoutAChangeOfTheLimit(t *testing.T) {
	h := newHarness(t)
	a, b := h.process(bob.UID), h.process(bob.UID)
	_, err := h.set(bob, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)
	_, err = h.set(root, "g", up(0), memberOf(b, 0)) // the limit is the user's
	require.NoError(t, err)
	require.Len(t, h.weights(), 2)
}

// The limit that another user requested of a process before it changed its user stays.
func TestMemberWithAnotherUsersLimit(t *testing.T) {
	h := newHarness(t)
	a := h.process(bob.UID)
	h.limit(a, Node{Requested: limit.Owners{enforce.OwnerUser: {Up: 1e6}}, User: 4243})
	_, err := h.set(bob, "g", up(1e6), memberOf(a, 0))
	_ = testutil.RequireFault(t, api.CodeDenied, err)

	_, err = h.set(root, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)
	group := h.FindName(api.Subject{Kind: api.KindGroup, ID: "g"})
	group.Requested, group.User = limit.Owners{enforce.OwnerUser: {Up: 1e6}}, bob.UID
	require.NoError(t, (&change{memory: h.memory}).set(&group))
	_, err = h.leave(bob, "g", a)
	_ = testutil.RequireFault(t, api.CodeDenied, err)
	group.User = 4243
	require.NoError(t, (&change{memory: h.memory}).set(&group))
	_, err = h.leave(bob, "g", a)
	require.Contains(t, testutil.RequireFault(t, api.CodeDenied, err).Message, "group:g is another user's")
}

// If the kernel refuses a member, nobody has joined, and the group is unchanged.
func TestJoinIsUndone(t *testing.T) {
	h := newHarness(t)
	a, b := h.process(0), h.process(0)
	h.kernel.Fail("Join", errors.New("no"))
	_, err := h.set(root, "g", up(1e6), memberOf(a, 0))
	require.Error(t, err)
	require.Empty(t, h.nodes)
	h.kernel.Fail("Join", nil)
	_, err = h.set(root, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)

	h.kernel.Fail("SetNode", errors.New("no"))
	_, err = h.set(root, "g", api.Wish{}, memberOf(b, 0))
	require.Contains(t, testutil.RequireFault(t, api.CodeInternal, err).NotUndone[0], fmt.Sprintf("process %d stays in group:g", b), "it has no node to leave by, and gets none")
	h.kernel.Fail("SetNode", nil)
	require.Equal(t, map[int]uint32{a: 100}, h.weights())
	_, err = h.set(root, "g", api.Wish{}, memberOf(b, 0))
	require.NoError(t, err, "it is in the group already")
	require.Len(t, h.weights(), 2)

	c := h.process(0)
	own := h.limited(c)
	h.kernel.Fail("SetNode", errors.New("no"))
	_, err = h.set(root, "g", api.Wish{}, memberOf(c, 0))
	require.EqualError(t, err, "no", "all is undone: it leaves by its own node")
	require.Equal(t, []uint32{own}, h.kernel.Trees(c))
}
