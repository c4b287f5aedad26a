package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
)

// An administrator's rule for a user is visible to that user, a rule for everybody to everybody.
func TestDestinationsOfRules(t *testing.T) {
	const text = `
[[rule]]
name = "his"
user = 41001
to = "203.0.113.0/24"
port = 443
up = "1MB/s"
[[rule]]
name = "of a unit"
unit = "x.service"
to = "192.0.2.0/24"
up = "1MB/s"
[[rule]]
name = "all"
to = "198.51.100.0/24"
up = "2MB/s"
`
	c := newClerk(t, new(enforcetest.Kernel), text, nil)
	ask := func(by auth.Actor) string {
		list, err := c.Rules(t.Context(), by)
		require.Len(t, list.Rules, 3)
		text := told(t, list, err)
		require.Contains(t, text, public)
		require.Equal(t, by.Root(), strings.Contains(text, "192.0.2.0"), "whose the unit is, is not known")
		return text
	}
	sees(t, "rules", ask)
	sees(t, "rules read again", func(by auth.Actor) string {
		list, err := c.ReloadRules(t.Context(), by)
		return told(t, list, err)
	})
	list, err := c.Rules(t.Context(), eves)
	require.NoError(t, err)
	require.Equal(t, []string{"user 41001", "to (hidden)"}, list.Rules[0].Conditions)
	require.Equal(t, []string{"to (hidden)"}, list.Rules[0].Connections)

	// An error may quote the destination.
	c.write(strings.Replace(text, "203.0.113.0/24", "203.0.113.7/24", 1))
	c.reload()
	for _, by := range []auth.Actor{root, eves} {
		list, err := c.Rules(t.Context(), by)
		require.NoError(t, err)
		require.Len(t, list.Problems, 1)
		require.Equal(t, 5, list.Problems[0].Line)
		require.Equal(t, by == root, strings.Contains(told(t, list.Problems, nil), secret))
	}
}

// The same holds for nodes of rules, and for the rules that match a process.
func TestDestinationsOfRulesOnProcesses(t *testing.T) {
	testutil.RequireRoot(t) // processes have to belong to the users
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "user = 41001\nto = '203.0.113.0/24'\nup = '1MB/s'"), nil)
	his, hers := c.runs(a, bobs.UID), c.runs(a, eves.UID)
	for _, pid := range []int{his, hers} {
		c.fake.Exec(pid)
	}
	c.settled()
	sees(t, "nodes", func(by auth.Actor) string {
		list, err := c.Nodes(t.Context(), by)
		require.Len(t, list.Nodes, 1)
		return told(t, list, err)
	})
	sees(t, "a rule's nodes", func(by auth.Actor) string {
		list, err := c.NodesFor(t.Context(), by, api.Subject{Kind: api.KindRule, ID: a})
		return told(t, list, err)
	})
	sees(t, "rules for a process", func(by auth.Actor) string {
		pid := his
		if by == eves {
			pid = hers
		}
		test, err := c.TestRules(t.Context(), by, pid)
		return told(t, test, err)
	})
}

// A user may name a unit or a cgroup so that the administrator's rule matches. The match does not reveal the
// destination of the rule.
func TestDestinationsOfRulesByOwnNames(t *testing.T) {
	c := newClerk(t, new(enforcetest.Kernel), "[[rule]]\nname = 'r'\nunit = 'x.service'\nto = '203.0.113.0/24'\nup = '1MB/s'\n", nil)
	const manager = "/user.slice/user-41001.slice/user@41001.service"
	for _, f := range []*desired.Facts{
		{Exe: "/bin/a", Comm: "a", User: bobs.UID, Group: manager + "/x.service", SystemGroup: manager},
		{Exe: "/bin/a", Comm: "a", User: bobs.UID, Group: "/system.slice/x.service", SystemGroup: "/system.slice/x.service"},
	} {
		mayKnow := f.SystemGroup == f.Group
		cmd := sleeper(t)
		res, err := c.resolver.Resolve(t.Context(), identity.PIDSubject(cmd.Process.Pid))
		require.NoError(t, err)
		res.UID = bobs.UID
		c.rules.mu.Lock()
		now := c.now()
		m := c.match(f, now)
		require.Len(t, m[enforce.OwnerAdmin].destined, 1)
		for by, sees := range map[auth.Actor]bool{bobs: mayKnow, {}: true} {
			verdicts := c.verdicts(by, f)
			require.Len(t, verdicts, 1)
			require.True(t, verdicts[0].Matches)
			require.Equal(t, sees, strings.Contains(told(t, verdicts, nil), secret), "rules test")
		}
		tree := c.applyRules(res, f, m, now)
		c.settleDestinations(m)
		c.rules.mu.Unlock()
		require.NotNil(t, tree)
		c.mu.Lock()
		found := 0
		for _, n := range c.nodes.Sorted() {
			if n.res.Kind == enforce.KindDestination {
				found++
				require.Equal(t, mayKnow, n.record().DestinationIsFor(bobs))
				require.Equal(t, mayKnow, n.record().IsOpenTo(tree.record()))
				require.True(t, n.record().DestinationIsFor(root))
			}
		}
		require.Equal(t, 1, found)
		require.NoError(t, c.drop(tree))
		c.followDestinations()
		c.mu.Unlock()
	}
}

// The fact that one owner has too many limits for an address is not visible to others, and does not restrict them.
func TestTooManyDestinationsOfAnother(t *testing.T) {
	c := newClerk(t, new(enforcetest.Kernel), "", nil)
	for i := range enforce.MostDestinationRules {
		c.mustSet(root, fmt.Sprintf("to:203.0.113.0/24:%d", i+1), up(1e6))
	}
	c.write("[[rule]]\nto = '203.0.113.7'\nup = '1MB/s'\n")
	require.Empty(t, c.reload().Problems)
	_, err := c.set(root, "to:192.0.2.0/24", up(1e6))
	requireCode(t, api.CodeConflict, err)
	require.ErrorContains(t, err, secret)
	c.mustSet(bobs, "to:192.0.2.0/24", up(1e6))
}
