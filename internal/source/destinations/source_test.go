package destinations

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/source/rulefiles"
	"github.com/netnice/netnice/internal/testutil"
)

// uses lists the nodes that hold for something, each with the node that it is under.
func (h *harness) uses() map[uint32]uint32 {
	list := make(map[uint32]uint32)
	for _, u := range h.kernel.Destinations().Uses {
		list[u.Node] = u.Scope
	}
	return list
}

// A limit on a subject's traffic is under a node of the subject, which goes with its last limit. A user's own limit needs
// no such node.
func TestLimitIsUnderItsSubject(t *testing.T) {
	h := newHarness(t)
	first := h.mustSet(root, "10.0.0.0/8@user:4242", 1e6)
	second := h.mustSet(root, "192.0.2.0/24@user:4242", 2e6)
	own := h.mustSet(bob, "10.0.0.0/8", 3e6)
	all := h.mustSet(root, "any", 4e6)
	require.Equal(t, "to:10.0.0.0/8@user:4242", own.Subject.String())
	require.Equal(t, "to:any", all.Subject.String())
	require.Equal(t, enforce.KindUser, h.nodes[first.Scope].Kind)
	require.Equal(t, map[uint32]uint32{first.ID: first.Scope, second.ID: first.Scope, own.ID: 0, all.ID: 0}, h.uses())

	answer, err := h.set(root, "10.0.0.0/8@user:4242", 5e6)
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.EqualValues(t, 5e6, h.nodes[first.ID].requested[enforce.OwnerAdmin].Up)
	_, err = h.set(root, "10.0.0.0/8@user:4242", 0)
	require.NoError(t, err)
	require.Equal(t, map[uint32]uint32{second.ID: first.Scope, own.ID: 0, all.ID: 0}, h.uses())
	require.Contains(t, h.nodes, first.Scope)
	_, err = h.remove(root, "192.0.2.0/24@user:4242")
	require.NoError(t, err)
	require.NotContains(t, h.nodes, first.Scope)
	require.Equal(t, map[uint32]uint32{own.ID: 0, all.ID: 0}, h.uses())
}

// Users lift their own limits, and learn of the administrator's only where they may know of it.
func TestLiftOfTwoOwners(t *testing.T) {
	h := newHarness(t)
	const to = "10.0.0.0/8@user:4242"
	h.mustSet(bob, to, 1e6)
	h.mustSet(root, to, 2e6)
	answer, err := h.remove(bob, to)
	require.NoError(t, err)
	require.Equal(t, []string{"the limit that the administrator set stays"}, answer.Warnings)
	_, err = h.remove(bob, to)
	testutil.RequireCode(t, api.CodeDenied, err)
	h.mustSet(bob, to, 1e6)
	h.said = nil
	answer, err = h.remove(root, to)
	require.NoError(t, err)
	require.Len(t, answer.Warnings, 1)
	require.Equal(t, []string{"peers", "lifted to:" + to, "lifted to:" + to}, h.said)
	require.Empty(t, h.nodes)
	_, err = h.remove(root, to)
	testutil.RequireCode(t, api.CodeNoLimit, err)
	_, err = h.remove(bob, "any@unit:x.service")
	testutil.RequireCode(t, api.CodeDenied, err)
}

// A request changes all, or nothing: the node, the one that it is under, addresses of names, and prefixes.
func TestAllOrNothing(t *testing.T) {
	h := newHarness(t)
	h.mustSet(root, "file:/a", 1e6, "10.0.0.0/8")
	before := h.everything()
	dry := requestOf("a.example,file:/b@user:4242", 1e6, "192.0.2.0/24")
	dry.DryRun = true
	answer, err := h.carry(h.source.Set(root, dry, false))
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.Equal(t, before, h.everything())

	for _, method := range []string{"SetNode", "SetDestinations"} {
		h.kernel.Fail(method, errors.New("not now"))
		_, err := h.set(root, "a.example,file:/b@user:4242", 1e6, "192.0.2.0/24")
		require.ErrorContains(t, err, "not now")
		_, err = h.set(root, "file:/a", 2e6, "192.0.2.0/24")
		require.ErrorContains(t, err, "not now")
		h.kernel.Fail(method, nil)
		h.source.Retry()
		require.Equal(t, before, h.everything())
	}
	h.kernel.Fail("RemoveNode", errors.New("not now"))
	_, err = h.remove(root, "file:/a")
	require.ErrorContains(t, err, "not now")
	h.kernel.Fail("RemoveNode", nil)
	require.Equal(t, before, h.everything())

	n := h.mustSet(root, "a.example,file:/b@user:4242", 1e6, "192.0.2.0/24")
	require.Equal(t, map[string][]netip.Addr{"a.example": {netip.MustParseAddr("192.0.2.9")}}, n.Names)
	require.Len(t, h.lists.Of(n.List), 1)
	_, err = h.remove(root, "a.example,file:/b@user:4242")
	require.NoError(t, err)
	require.Nil(t, h.lists.Of(n.List))
}

func TestSettingsThatNoPartHas(t *testing.T) {
	h := newHarness(t)
	weight := uint32(50)
	for name, req := range map[string]api.SetRequest{
		"a weight":              {Subject: requestOf("any", 1).Subject, Wish: api.Wish{Weight: &weight}},
		"a scope":               {Subject: requestOf("any", 1).Subject, Scope: true},
		"prefixes, and no file": requestOf("any", 1e6, "10.0.0.0/8"),
		"no prefix":             requestOf("file:/a", 1e6, "10.0.0.0/99"),
		"a file not read yet":   requestOf("file:/a", 1e6),
		"no part":               requestOf("10.0.0.0/99", 1e6),
		"a link's":              requestOf("any@link:eth0", 1e6),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.carry(h.source.Set(root, req, false))
			testutil.RequireCode(t, api.CodeBadRequest, err)
			require.Empty(t, h.nodes)
		})
	}
	_, err := h.set(root, "b.example", 1e6)
	testutil.RequireCode(t, api.CodeNotFound, err)
}

func TestMostLimitsForOnePrefix(t *testing.T) {
	h := newHarness(t)
	for i := range enforce.MostDestinationRules {
		h.mustSet(root, fmt.Sprintf("10.0.0.0/8:%d", i+1), 1e6)
	}
	_, err := h.set(root, "any", 1e6)
	testutil.RequireCode(t, api.CodeConflict, err)
	h.mustSet(bob, "any", 1e6)
	var many []string
	for i := range rules.MaxUserDestinations {
		many = append(many, fmt.Sprintf("172.%d.%d.0/24", i/256, i%256))
	}
	_, err = h.set(bob, "file:/many", 1e6, many...)
	require.ErrorContains(t, err, "you name as many prefixes in limits already")
	h.mustSet(root, "file:/many@user:4242", 1e6, many...)
}

// Nodes of rules stay until all rules are known, and no command sets a limit beside them.
func TestRulesThatAreNotKnown(t *testing.T) {
	h := newHarness(t)
	tx, err := h.Begin()
	require.NoError(t, err)
	of := identity.Resolved{Subject: api.Subject{Kind: api.KindRule, ID: "r"}, Kind: enforce.KindDestination, Key: 7 << 32}
	id, err := tx.put(limited{Node: Node{Resolved: of}, isOfRule: true})
	require.NoError(t, err)
	tx.Commit()
	_, err = h.set(root, "any", 1e6)
	testutil.RequireCode(t, api.CodeConflict, err)
	h.source.Follow()
	require.Contains(t, h.nodes, id)
	require.Zero(t, h.kernel.Calls("SetDestinations"))

	h.source.Learn(rulefiles.Destinations{Known: true})
	h.source.AssignRules(false)
	require.Contains(t, h.nodes, id, "a process that no such rule matches changes nothing")
	h.source.Follow()
	require.NotContains(t, h.nodes, id)
	require.Equal(t, []string{"a rule's was lifted"}, h.said)
	h.mustSet(root, "any", 1e6)
	h.isDown = true
	calls := h.kernel.Calls("SetDestinations")
	h.source.Follow()
	require.Equal(t, calls, h.kernel.Calls("SetDestinations"))
}

// The kernel is told again at the next look if it has refused that, and after it has lost nodes. It is asked once if all
// is well.
func TestAssignmentIsRetried(t *testing.T) {
	h := newHarness(t)
	n := h.mustSet(root, "any", 1e6)
	calls := h.kernel.Calls("SetDestinations")
	h.source.Retry()
	require.Equal(t, calls, h.kernel.Calls("SetDestinations"))
	h.source.AssignAgain()
	require.Equal(t, calls+1, h.kernel.Calls("SetDestinations"))

	h.kernel.Fail("SetDestinations", errors.New("not now"))
	h.source.Follow()
	h.source.Retry()
	require.Len(t, h.failed, 1, "the same refusal is logged once")
	h.kernel.Fail("SetDestinations", errors.New("still not"))
	h.source.Retry()
	require.Len(t, h.failed, 2)
	h.kernel.Fail("SetDestinations", nil)
	h.source.Retry()
	require.Equal(t, map[uint32]uint32{n.ID: 0}, h.uses())
}

// The limits under a subject that is gone end, with their prefixes.
func TestLimitsEndWithTheirSubject(t *testing.T) {
	h := newHarness(t)
	n := h.mustSet(root, "file:/a@user:4242", 1e6, "10.0.0.0/8")
	other := h.mustSet(root, "any", 1e6)
	h.said = nil
	h.source.EndGone()
	require.Empty(t, h.said)
	delete(h.nodes, n.Scope)
	h.source.EndGone()
	require.Equal(t, []string{"ended"}, h.said)
	require.Equal(t, map[uint32]uint32{other.ID: 0}, h.uses())
	require.Nil(t, h.lists.Of(n.List))
}
