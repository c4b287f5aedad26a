package observe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// The owner of a node, and the user whose traffic it limits, decide which users see its destination, and who hears of it.
func TestDestinationIsFor(t *testing.T) {
	user := &Node{ID: 1, Resolved: identity.User(bobs.UID)}
	tree := &Node{ID: 2, Resolved: identity.Resolved{Kind: enforce.KindTree, Key: 9477, UID: bobs.UID}}
	unit := &Node{ID: 3, Resolved: identity.Resolved{Kind: enforce.KindCgroup}}
	limited := func(under, bound uint32, change ...func(*Node)) *Node {
		n := &Node{
			ID: 9, Resolved: identity.Resolved{Subject: api.Subject{Kind: api.KindTo, ID: "203.0.113.7"}, Kind: enforce.KindDestination},
			To: &Destination{Under: under, OfAll: under == 0}, Users: Users{Bound: bound},
		}
		for _, c := range change {
			c(n)
		}
		return n
	}
	byBob := func(n *Node) { n.Users.Owner, n.Users.HasOwner, n.Users.OnlyUser = bobs.UID, true, true }
	met := func(n *Node) { n.To.IsMet = true }
	rule := func(bound, number uint32, change ...func(*Node)) *Node {
		n := &Node{
			ID: 9, Resolved: identity.Resolved{Subject: api.Subject{Kind: api.KindRule, ID: "r"}, Kind: enforce.KindDestination, UID: bound},
			Users: Users{Bound: bound}, Rules: Rules{Destined: number},
		}
		n.Rules.Limiting[enforce.OwnerAdmin] = []rules.Origin{{Key: "k"}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	for name, c := range map[string]struct {
		n               *Node
		bob, everybody  bool
		withinHisCgroup bool // bob sees it where he asks about a process of his that is in the cgroup
	}{
		"no destination":                       {n: user, bob: true, everybody: true},
		"a user's own, of all":                 {n: limited(0, 0, byBob), bob: true},
		"a user's own, of a process":           {n: limited(tree.ID, bobs.UID, byBob), bob: true},
		"a user's own, for each address":       {n: limited(0, 0, byBob, met), bob: true},
		"a user's on what is another's now":    {n: limited(4, 0, byBob), bob: true},
		"the administrator's on a user":        {n: limited(user.ID, bobs.UID), bob: true},
		"on a user's process":                  {n: limited(tree.ID, bobs.UID), bob: true},
		"on a user's scope":                    {n: limited(5, bobs.UID), bob: true},
		"on a process of root's":               {n: limited(4, 0)},
		"on a unit":                            {n: limited(unit.ID, 0), withinHisCgroup: true},
		"on a unit, for each address":          {n: limited(unit.ID, 0, met)},
		"on everybody":                         {n: limited(0, 0), bob: true, everybody: true},
		"on everybody, as somebody sent there": {n: limited(0, 0, met)},
		"under what is gone":                   {n: limited(0, 0, func(n *Node) { n.To.OfAll = false })},
		"a rule on everybody":                  {n: rule(0, enforce.RuleEverybody|7), bob: true, everybody: true},
		"a rule on a user's process":           {n: rule(bobs.UID, 7), bob: true},
		"a rule on all that match":             {n: rule(0, 7)},
		"a user's own rule":                    {n: rule(bobs.UID, enforce.RuleEverybody|7, byBob), bob: true},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, c.n.DestinationIsFor(root))
			require.True(t, c.n.DestinationIsFor(auth.Actor{UID: eves.UID, Admin: true}))
			require.Equal(t, c.bob, c.n.DestinationIsFor(bobs))
			require.Equal(t, c.everybody, c.n.DestinationIsFor(eves))
			require.Equal(t, c.bob || c.withinHisCgroup, viewer{by: bobs, within: []*Node{tree, unit}}.sees(c.n))
			a := c.n.audience()
			require.True(t, a.has(root))
			require.False(t, a.has(eves), "no event but the host's is everybody's")
			require.Equal(t, c.n.UID == bobs.UID || c.bob && c.n.Users.Bound == bobs.UID || c.n.Users.Owner == bobs.UID, a.has(bobs))
		})
	}
}

func TestHidden(t *testing.T) {
	for _, c := range []struct {
		kind                       api.Kind
		id, name, subject, theName string
	}{
		{api.KindTo, "203.0.113.7:443/tcp@pid:9477", "curl", "to:(hidden)@pid:9477", "curl"},
		{api.KindTo, "any,!203.0.113.0/24", "", "to:(hidden)", ""},
		{api.KindTo, "file:/home/bob/peers.txt@user:bob", "bob", "to:(hidden)@user:bob", "bob"},
		{api.KindRule, "web", "to 203.0.113.7, port 443 of pid:9477", "rule:web", "(hidden) of pid:9477"},
		{api.KindRule, "web", "to 203.0.113.7", "rule:web", "(hidden)"},
	} {
		n := &Node{Resolved: identity.Resolved{Subject: api.Subject{Kind: c.kind, ID: c.id}, Name: c.name, Kind: enforce.KindDestination}}
		subject, name := n.hidden()
		require.Equal(t, c.subject, subject.String())
		require.Equal(t, c.theName, name)
		require.True(t, (&api.Node{Subject: subject, Name: name, Private: true}).IsHidden())
		require.False(t, (&api.Node{Subject: n.Subject, Name: n.Name, Private: true}).IsHidden())
	}
}
