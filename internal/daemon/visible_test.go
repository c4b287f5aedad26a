package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/desired/desiredtest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/testutil"
)

// These are two users that no machine has. The secret part of bob's traffic is in 203.0.113.0/24.
var (
	bobs = auth.Actor{UID: 41001}
	eves = auth.Actor{UID: 41002}
)

const (
	ofBob   = "user:41001"
	secret  = "203.0.113."
	public  = "198.51.100."
	theName = "a.example"
)

// told returns the whole text of an answer.
func told(t testing.TB, answer any, err error) string {
	t.Helper()
	require.NoError(t, err)
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	return string(text)
}

// sees makes a request as root, as an administrator, as bob and as a third user. The answer to the third user must not
// contain the secret.
func sees(t testing.TB, what string, ask func(by auth.Actor) string) {
	t.Helper()
	require.Contains(t, ask(root), secret, "%s: root", what)
	require.Contains(t, ask(auth.Actor{UID: eves.UID, Admin: true}), secret, "%s: an administrator", what)
	require.Contains(t, ask(bobs), secret, "%s: whose it is", what)
	text := ask(eves)
	require.NotContains(t, text, secret, "%s: another user", what)
	require.NotContains(t, text, theName, "%s: another user", what)
}

// text returns the text of all events that a reader got.
func (r *heardBy) text(t testing.TB) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	return told(t, r.list, nil)
}

// The owner of a node, and the user whose traffic it limits, decide which users see its destination. Readers know both
// from the node's record.
func TestDestinationIsFor(t *testing.T) {
	user := &node{id: 1, res: identity.User(bobs.UID)}
	tree := &node{id: 2, res: identity.Resolved{Kind: enforce.KindTree, Key: 9477, UID: bobs.UID}}
	roots := &node{id: 3, res: identity.Resolved{Kind: enforce.KindTree, Key: 1234}}
	unit := &node{id: 4, res: identity.Resolved{Kind: enforce.KindCgroup}}
	own := &node{id: 5, res: identity.Resolved{Kind: enforce.KindCgroup}, scope: &desired.Scope{UID: bobs.UID}}
	limited := func(scope *node, change ...func(*node)) *node {
		n := &node{res: identity.Resolved{Subject: api.Subject{Kind: api.KindTo, ID: "203.0.113.7"}, Kind: enforce.KindDestination}, to: &part{scope: scope}}
		n.Requested[enforce.OwnerAdmin].Up = 1
		if scope != nil {
			n.res.UID = scope.res.UID
		}
		for _, c := range change {
			c(n)
		}
		return n
	}
	byBob := func(n *node) {
		n.Requested = limit.Owners{enforce.OwnerUser: limit.Limit{Up: 1}}
		n.userUID = bobs.UID
	}
	each, met := func(n *node) { n.to.each = 5 }, func(n *node) { n.to.met = true }
	rule := func(uid, number uint32, change ...func(*node)) *node {
		n := &node{res: identity.Resolved{Subject: api.Subject{Kind: api.KindRule, ID: "r"}, Kind: enforce.KindDestination, UID: uid}}
		n.Ruled.Destined = number
		n.Ruled.Owners[enforce.OwnerAdmin].Rules = []rules.Origin{{Key: "k"}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	ruleOfBob := func(n *node) {
		n.Ruled.Owners = [enforce.Owners]desired.OwnerRules{enforce.OwnerUser: {Rules: []rules.Origin{{Key: "k"}}}}
		n.userUID = bobs.UID
	}
	for name, c := range map[string]struct {
		n              *node
		bob, everybody bool
	}{
		"no destination":                       {n: user, bob: true, everybody: true},
		"a user's own, of all":                 {n: limited(nil, byBob), bob: true},
		"a user's own, of a process":           {n: limited(tree, byBob), bob: true},
		"a user's own, for each address":       {n: limited(nil, byBob, each), bob: true},
		"a user's on what is another's now":    {n: limited(roots, byBob), bob: true},
		"the administrator's on a user":        {n: limited(user), bob: true},
		"on a user's process":                  {n: limited(tree), bob: true},
		"on a user's scope":                    {n: limited(own), bob: true},
		"on a user, for each address":          {n: limited(user, each), bob: true},
		"on a process of root's":               {n: limited(roots)},
		"on a unit":                            {n: limited(unit)},
		"on a unit, for each address":          {n: limited(unit, each)},
		"on everybody":                         {n: limited(nil), bob: true, everybody: true},
		"on everybody, for each address":       {n: limited(nil, each)},
		"on everybody, as somebody sent there": {n: limited(nil, met)},
		"a rule on everybody":                  {n: rule(0, enforce.RuleEverybody|7), bob: true, everybody: true},
		"a rule on a user's process":           {n: rule(bobs.UID, 7), bob: true},
		"a rule on all that match":             {n: rule(0, 7)},
		"a user's own rule":                    {n: rule(bobs.UID, enforce.RuleEverybody|7, ruleOfBob), bob: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.n.record()
			require.True(t, n.DestinationIsFor(root))
			require.True(t, n.DestinationIsFor(auth.Actor{UID: eves.UID, Admin: true}))
			require.Equal(t, c.bob, n.DestinationIsFor(bobs))
			require.Equal(t, c.everybody, n.DestinationIsFor(eves))
			require.Equal(t, c.n.userUID == bobs.UID, n.Users.HasOwner)
			if c.n.to != nil && c.n.to.scope != nil {
				require.Equal(t, c.n.to.scope.id, n.To.Under)
			}
		})
	}
}

// The test covers lists, questions about one subject, answers, and events.
func TestDestinationsOfOthers(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.LookupNames = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr(secret + "9")}, nil
	}
	h := start(t, fake, opts)
	hears, hearsBob, hearsEve := h.hear(root), h.hear(bobs), h.hear(eves)
	his := h.mustSet(bobs, "to:203.0.113.1:443,"+theName, up(1e6))
	require.Equal(t, "to:203.0.113.1,"+theName+":443@"+ofBob, his.Subject.String())
	require.True(t, his.Private)
	require.Len(t, his.Names, 1)
	h.mustSet(root, "to:203.0.113.2@"+ofBob, up(2e6))
	h.mustSet(root, "to:198.51.100.0/24", up(3e6))

	sees(t, "the list", func(by auth.Actor) string {
		list, err := h.Nodes(t.Context(), by)
		require.Len(t, list.Nodes, 3, "everybody sees the rows")
		text := told(t, list, err)
		require.Contains(t, text, public)
		return text
	})
	list, err := h.Nodes(t.Context(), eves)
	require.NoError(t, err)
	for _, n := range list.Nodes {
		require.Equal(t, n.Private, n.IsHidden())
		require.Equal(t, !n.Private, strings.Contains(n.Subject.ID, public))
		if n.Private {
			require.Equal(t, "to:(hidden)@"+ofBob, n.Subject.String())
			require.NotZero(t, n.Limits[0].BytesPerSec)
		}
	}
	sees(t, "what holds for a user", func(by auth.Actor) string {
		list, err := h.NodesFor(t.Context(), by, api.Subject{Kind: api.KindUser, ID: "41001"})
		return told(t, list, err)
	})

	// A guess of a destination is not confirmed.
	for _, id := range []string{"203.0.113.2", "203.0.113.2@" + ofBob} {
		guess := api.Subject{Kind: api.KindTo, ID: id}
		sees(t, "one destination", func(by auth.Actor) string {
			list, err := h.NodesFor(t.Context(), by, guess)
			if by == eves {
				testutil.RequireCode(t, api.CodeNoLimit, err)
				return ""
			}
			return told(t, list, err)
		})
	}
	wrong := func(subject string) string {
		_, err := h.remove(eves, subject)
		testutil.RequireCode(t, api.CodeDenied, err)
		return strings.ReplaceAll(err.Error(), strings.TrimPrefix(subject, "to:"), "")
	}
	require.Equal(t, wrong("to:203.0.113.99@"+ofBob), wrong("to:203.0.113.2@"+ofBob))

	// The event about the host comes last, and every reader gets it.
	h.mustSet(root, "host", up(9e6))
	last := func(r *heardBy) bool {
		s := r.last(api.EventLimitSet).Subject
		return s != nil && s.Kind == api.KindHost
	}
	h.eventually("all are told", func() bool { return last(hears) && last(hearsBob) && last(hearsEve) })
	sees(t, "events", func(by auth.Actor) string {
		switch by {
		case bobs:
			require.Contains(t, hearsBob.text(t), "203.0.113.2@", "also of the administrator's on him")
			return hearsBob.text(t)
		case eves:
			return hearsEve.text(t)
		}
		return hears.text(t)
	})
}

// The destinations of a process that has ended stay hidden, although the process has no owner any more.
func TestDestinationsOfAProcessThatHasEnded(t *testing.T) {
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	cmd := sleeper(t)
	subject := "to:203.0.113.3@" + pidSubject(cmd)
	h.mustSet(root, subject, up(1e6))
	fake.SetStats(enforce.NodeStats{ID: h.scopeFor(pidSubject(cmd)), Processes: 1}) // a child lives on
	end(cmd)
	_, err := h.remove(eves, subject)
	require.Error(t, err)
	_, none := h.remove(eves, strings.Replace(subject, "113.3", "113.4", 1))
	require.Error(t, none)
	require.Equal(t, none.Error(), strings.Replace(err.Error(), "113.3", "113.4", 1), "as where there is no limit")
	_, err = h.remove(root, subject)
	require.NoError(t, err)
}

// Addresses that no owner has named are those to which a program sends.
func TestDestinationsThatAreMet(t *testing.T) {
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	fake.SetPeers(here(t, "203.0.113.7")...)
	h.setEach(root, "to:any/each@"+ofBob, up(1e6))
	h.eventually("it is met", func() bool { return h.upTo("to:203.0.113.7@"+ofBob) == 1e6 })
	list := func(by auth.Actor) string {
		list, err := h.Nodes(t.Context(), by)
		return told(t, list, err)
	}
	sees(t, "a user's peers", list)
	_, err := h.remove(root, "to:any/each@"+ofBob)
	require.NoError(t, err)
	h.eventually("all are gone", func() bool { return h.count() == 0 })

	h.setEach(root, "to:any/each", up(1e6))
	h.eventually("it is met", func() bool { return h.upTo("to:203.0.113.7") == 1e6 })
	require.Contains(t, list(root), secret)
	for _, by := range []auth.Actor{bobs, eves} {
		require.NotContains(t, list(by), secret, "one of them has sent there, and nobody knows who")
		require.Contains(t, list(by), "any/each", "what was named is everybody's")
	}
}

// The hosts of an area are hidden, too, in the list of paths and in the list of limits, also by the next daemon.
func TestDestinationsOfAnArea(t *testing.T) {
	h, _, fake := adaptHarness(t)
	fake.SetPeers(here(t, "203.0.113.7")...)
	for _, host := range []string{"any", "198.51.100.7"} {
		_, err := h.adapt(root, api.AdaptRequest{Host: host})
		require.NoError(t, err)
	}
	check := func(h *harness) {
		t.Helper()
		h.eventually("both are followed", func() bool { return len(h.followed()) == 2 })
		for _, by := range []auth.Actor{root, bobs} {
			paths, err := h.Adapted(t.Context(), by)
			nodes, nodesErr := h.Nodes(t.Context(), by)
			require.Len(t, paths.Areas, 1)
			require.Len(t, nodes.Nodes, 3)
			for _, text := range []string{told(t, paths, err), told(t, nodes, nodesErr)} {
				require.Equal(t, by == root, strings.Contains(text, secret))
				require.Contains(t, text, public+"7", "the administrator has named it")
			}
		}
	}
	check(h)
	require.NoError(t, h.stop())
	h = start(t, fake, h.opts)
	check(h)
	_, err := h.set(root, "to:203.0.113.7/udp", up(123456))
	require.NoError(t, err)
	nodes, err := h.Nodes(t.Context(), bobs)
	require.Contains(t, told(t, nodes, err), secret, "now the administrator has named it")
}

// They stay hidden where the file of the paths is damaged, which alone says that a host is followed.
func TestDestinationsOfAnAreaWhoseFileIsDamaged(t *testing.T) {
	h, _, fake := adaptHarness(t)
	fake.SetPeers(here(t, "203.0.113.7")...)
	_, err := h.adapt(root, api.AdaptRequest{Host: "any"})
	require.NoError(t, err)
	h.eventually("it is followed", func() bool { return len(h.followed()) == 1 })
	list := func(by auth.Actor) string {
		nodes, err := h.Nodes(t.Context(), by)
		return told(t, nodes, err)
	}
	hidden := func() {
		t.Helper()
		require.Contains(t, list(root), secret)
		require.NotContains(t, list(bobs), secret, "nobody has named it")
	}
	hidden()
	again := func() {
		t.Helper()
		require.NoError(t, h.stop())
		for _, path := range Damaged(h.opts.StateDir) {
			require.NoError(t, os.Remove(path))
		}
	}
	damage := func() {
		require.NoError(t, os.WriteFile(h.adaptationPath(), []byte(`{"version":4,"adapted":[{"ho`), 0o600))
	}
	for range 2 {
		again()
		damage()
		h = start(t, fake, h.opts)
		require.Len(t, Damaged(h.opts.StateDir), 1)
		require.Empty(t, h.followed())
		hidden()
	}

	// An earlier release did not write this with the limit.
	h.mustSet(root, "to:198.51.100.0/24", up(1e6))
	again()
	s, err := desired.Load(h.opts.StateDir, h.boot)
	require.NoError(t, err)
	for i := range s.Nodes {
		s.Nodes[i].To.Met = false
	}
	text := bytes.Replace(desiredtest.Text(t, h.boot, s.NextID, s.Nodes...), fmt.Appendf(nil, `"version":%d`, desired.Version), fmt.Appendf(nil, `"version":%d`, desired.MetVersion-1), 1)
	require.NoError(t, os.WriteFile(h.file.Path(), text, 0o600))
	damage()
	for range 2 {
		h = start(t, fake, h.opts)
		hidden()
		require.Contains(t, list(bobs), public, "this cannot be one that was met")
		h.written()
		h.eventually("that is written", func() bool {
			s, err := desired.Load(h.opts.StateDir, h.boot)
			return err == nil && slices.ContainsFunc(s.Nodes, func(n desired.Record) bool { return n.To != nil && n.To.Met })
		})
		again()
	}

	h = start(t, fake, h.opts)
	_, err = h.set(root, "to:203.0.113.7/udp", up(123456))
	require.NoError(t, err)
	again()
	h = start(t, fake, h.opts)
	require.Contains(t, list(bobs), secret, "now the administrator has named it")
}
