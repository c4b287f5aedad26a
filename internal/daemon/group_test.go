package daemon

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

func (h *harness) group(by auth.Actor, name string, w api.Wish, members ...api.Member) (api.SetResponse, error) {
	return h.Set(context.Background(), by, api.SetRequest{
		Subject: api.Subject{Kind: api.KindGroup, ID: name}, Wish: w, Members: members,
	})
}

func memberOf(cmd *exec.Cmd, weight uint32) api.Member {
	return api.Member{PID: cmd.Process.Pid, Weight: weight}
}

// A group's members are nodes of their own inside its node, with their weights. The group can be changed, joined and
// dissolved, and outlives the daemon.
func TestGroup(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	a, b, c := sleeper(t), sleeper(t), sleeper(t)
	h.mustSet(root, pidSubject(b), up(1e6)) // its own limit stays

	answer, err := h.group(root, "backups", up(10e6), memberOf(a, 300), memberOf(b, 0))
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.Equal(t, "group:backups", answer.Node.Subject.String())
	require.EqualValues(t, 10e6, answer.Node.Limits[0].BytesPerSec)
	spec, _ := fake.Spec(answer.Node.ID)
	require.Equal(t, enforce.KindTree, spec.Kind)
	require.Zero(t, spec.Subject)
	require.Equal(t, 2, fake.Calls("Join"))
	weights := func() map[string]uint32 {
		list, err := h.Nodes(context.Background(), root)
		require.NoError(t, err)
		out := map[string]uint32{}
		for _, n := range list.Nodes {
			if n.Group == "backups" {
				out[n.Subject.String()] = n.Weight
			}
		}
		return out
	}
	require.Equal(t, map[string]uint32{pidSubject(a): 300, pidSubject(b): 100}, weights())

	_, err = h.group(root, "backups", api.Wish{}, memberOf(c, 1), memberOf(a, 200))
	require.NoError(t, err)
	require.Equal(t, 3, fake.Calls("Join"), "who is in it does not join again")
	require.Equal(t, map[string]uint32{pidSubject(a): 200, pidSubject(b): 100, pidSubject(c): 1}, weights())
	require.EqualValues(t, 5e6, h.mustSet(root, "group:backups", up(5e6)).Limits[0].BytesPerSec)

	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	nodes, err := h.nodesFor("group:backups")
	require.NoError(t, err)
	require.EqualValues(t, 5e6, nodes[0].Limits[0].BytesPerSec)
	require.Len(t, weights(), 3)

	_, err = h.remove(root, "group:backups")
	require.NoError(t, err)
	require.Empty(t, weights())
	nodes, err = h.nodesFor(pidSubject(b))
	require.NoError(t, err)
	require.EqualValues(t, 1e6, nodes[0].Limits[0].BytesPerSec)
	_, err = h.remove(root, "group:backups")
	testutil.RequireCode(t, api.CodeNotFound, err)
}

func TestOnlyGroupsHaveMembers(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	_, err := h.Set(context.Background(), root, api.SetRequest{Subject: api.Subject{Kind: api.KindUser, ID: "4242"}, Wish: up(1), Members: []api.Member{{PID: 2}}})
	testutil.RequireCode(t, api.CodeBadRequest, err)
	require.Zero(t, fake.Calls("SetNode"))
}

func (h *harness) leave(by auth.Actor, name string, pids ...int) (api.SetResponse, error) {
	req := api.SetRequest{Subject: api.Subject{Kind: api.KindGroup, ID: name}, Leave: true}
	for _, pid := range pids {
		req.Members = append(req.Members, api.Member{PID: pid})
	}
	return h.Set(context.Background(), by, req)
}

// Members leave a group and keep their other limits; the group ends with its last one.
func TestGroupLeft(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	a, b, c := sleeper(t), sleeper(t), sleeper(t)
	h.mustSet(root, pidSubject(b), up(1e6))
	_, err := h.group(root, "g", up(10e6), memberOf(a, 0), memberOf(b, 0), memberOf(c, 300))
	require.NoError(t, err)
	members := func() (list []string) {
		nodes, err := h.Nodes(context.Background(), root)
		require.NoError(t, err)
		for _, n := range nodes.Nodes {
			if n.Group != "" {
				list = append(list, n.Subject.String())
			}
		}
		return list
	}
	before := members()
	require.Len(t, before, 3)

	req := api.SetRequest{Subject: api.Subject{Kind: api.KindGroup}, Members: []api.Member{memberOf(a, 0)}, Leave: true, DryRun: true}
	answer, err := h.Set(context.Background(), root, req)
	require.NoError(t, err)
	require.Equal(t, []api.Left{{PID: a.Process.Pid, Group: "g"}}, answer.Left)
	require.Equal(t, before, members(), "a dry run changes nothing")

	// If one of the processes is no member, none leaves.
	other := sleeper(t)
	_, err = h.leave(root, "g", a.Process.Pid, other.Process.Pid)
	require.Contains(t, testutil.RequireFault(t, api.CodeNotFound, err).Message, "is no member of group:g")
	_, err = h.leave(root, "h", a.Process.Pid)
	require.Contains(t, testutil.RequireFault(t, api.CodeNotFound, err).Message, "is no member of group:h")
	req.DryRun, req.Wish = false, up(1)
	_, err = h.Set(context.Background(), root, req)
	testutil.RequireCode(t, api.CodeBadRequest, err)
	req.Wish, req.Members = api.Wish{}, []api.Member{memberOf(a, 7)}
	_, err = h.Set(context.Background(), root, req)
	testutil.RequireCode(t, api.CodeBadRequest, err)
	require.Equal(t, before, members())

	answer, err = h.leave(root, "", a.Process.Pid, b.Process.Pid, a.Process.Pid)
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.Len(t, answer.Left, 2, "one is named twice")
	require.Equal(t, []string{pidSubject(c)}, members())
	require.Equal(t, 2, fake.Calls("Leave"))
	_, err = h.nodesFor(pidSubject(a))
	testutil.RequireCode(t, api.CodeNoLimit, err)
	nodes, err := h.nodesFor(pidSubject(b))
	require.NoError(t, err)
	require.EqualValues(t, 1e6, nodes[0].Limits[0].BytesPerSec, "its own limit stays")

	// If the kernel refuses, nothing changes, also after a restart.
	fake.Fail("Leave", errors.New("no"))
	_, err = h.leave(root, "g", c.Process.Pid)
	require.Error(t, err)
	fake.Fail("Leave", nil)
	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	require.Equal(t, []string{pidSubject(c)}, members())

	_, err = h.leave(root, "g", c.Process.Pid)
	require.NoError(t, err)
	require.Empty(t, members())
	_, err = h.nodesFor("group:g")
	testutil.RequireCode(t, api.CodeNotFound, err)
	nodes, err = h.nodesFor(pidSubject(c))
	require.NoError(t, err)
	require.EqualValues(t, 300, nodes[0].Weight, "as after unset --group")
	require.Equal(t, 3, fake.Calls("Leave")-1, "one failed")
}

// A user takes their own processes out of groups that are only theirs.
func TestGroupLeftByUsers(t *testing.T) {
	testutil.RequireRoot(t)
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	const uid = 4242
	bob := auth.Actor{UID: uid}
	a, b, admins := sleeperAs(t, uid), sleeperAs(t, uid), sleeper(t)
	_, err := h.group(bob, "bobs", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	_, err = h.leave(auth.Actor{UID: 4243}, "", a.Process.Pid)
	require.Contains(t, testutil.RequireFault(t, api.CodeDenied, err).Message, "belongs to another user")
	_, err = h.leave(bob, "", a.Process.Pid)
	require.NoError(t, err)

	_, err = h.group(root, "bobs", up(5e5))
	require.NoError(t, err)
	_, err = h.leave(bob, "", b.Process.Pid)
	fault := testutil.RequireFault(t, api.CodeDenied, err)
	require.Contains(t, fault.Message, "set by the administrator")
	require.Equal(t, fmt.Sprintf("sudo netnice fair --leave %d", b.Process.Pid), fault.Hint)

	_, err = h.group(root, "admins", up(1e6), memberOf(admins, 0), memberOf(a, 0))
	require.NoError(t, err)
	for _, cmd := range []*exec.Cmd{admins, a} {
		_, err = h.leave(bob, "", cmd.Process.Pid)
		testutil.RequireCode(t, api.CodeDenied, err)
	}
	_, err = h.leave(root, "", a.Process.Pid, b.Process.Pid)
	require.NoError(t, err)
}
