package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
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
	c.Write(strings.Replace(text, "203.0.113.0/24", "203.0.113.7/24", 1))
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
	his, hers := c.Run(a, bobs.UID), c.Run(a, eves.UID)
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
	for name, mayKnow := range map[string]bool{
		"/user.slice/user-41001.slice/user@41001.service/x.service": false,
		"/system.slice/x.service":                                   true,
	} {
		t.Run(name, func(t *testing.T) { destinationOfRuleByName(t, name, mayKnow) })
	}
}

// destinationOfRuleByName has a rule match the process 4711 of bob's by the name of its cgroup.
func destinationOfRuleByName(t *testing.T, cgroup string, mayKnow bool) {
	const text = "[[rule]]\nname = 'r'\nunit = 'x.service'\nto = '203.0.113.0/24'\nup = '1MB/s'\n"
	c := newClerk(t, new(enforcetest.Kernel), text, func(o *Options) {
		o.Identity.Proc, o.Identity.VarLib = fakeProc(t), t.TempDir()
		process := filepath.Join(o.Identity.Proc, "4711")
		for name, text := range map[string]string{
			"comm": "a\n", "cgroup": "0::" + cgroup + "\n", "status": fmt.Sprintf("Name:\ta\nTgid:\t4711\nPid:\t4711\nPPid:\t1\nUid:\t%d\t0\t0\t0\n", bobs.UID),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(process, name), []byte(text), 0o644))
		}
		require.NoError(t, os.Symlink("/bin/a", filepath.Join(process, "exe")))
		require.NoError(t, os.MkdirAll(filepath.Join(o.Identity.CgroupRoot, "system.slice/x.service"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(o.Identity.CgroupRoot, "user.slice/user-41001.slice"), 0o755))
	})
	for by, sees := range map[auth.Actor]bool{bobs: mayKnow, {}: true} {
		test, err := c.TestRules(t.Context(), by, 4711)
		require.NoError(t, err)
		require.Len(t, test.Rules, 1)
		require.True(t, test.Rules[0].Matches)
		require.Equal(t, sees, strings.Contains(told(t, test.Rules, nil), secret), "rules test")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tree := c.nodes.FindName(identity.PIDSubject(4711))
	require.NotNil(t, tree)
	require.Len(t, tree.Ruled.Owners[enforce.OwnerAdmin].To, 1)
	found := 0
	for n := range c.nodes.All() {
		if n.res.Kind == enforce.KindDestination {
			found++
			require.Equal(t, mayKnow, n.record().DestinationIsFor(bobs))
			require.Equal(t, mayKnow, n.record().IsOpenTo(tree.record()))
			require.True(t, n.record().DestinationIsFor(root))
		}
	}
	require.Equal(t, 1, found)
}

// The fact that one owner has too many limits for an address is not visible to others, and does not restrict them.
func TestTooManyDestinationsOfAnother(t *testing.T) {
	c := newClerk(t, new(enforcetest.Kernel), "", nil)
	for i := range enforce.MostDestinationRules {
		c.mustSet(root, fmt.Sprintf("to:203.0.113.0/24:%d", i+1), up(1e6))
	}
	c.Write("[[rule]]\nto = '203.0.113.7'\nup = '1MB/s'\n")
	require.Empty(t, c.reload().Problems)
	_, err := c.set(root, "to:192.0.2.0/24", up(1e6))
	testutil.RequireCode(t, api.CodeConflict, err)
	require.ErrorContains(t, err, secret)
	c.mustSet(bobs, "to:192.0.2.0/24", up(1e6))
}
