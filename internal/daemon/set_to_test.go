package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// holdsTo returns the subject whose limit holds for an address on a path with these nodes, as the kernel side decides
// it by its maps. "" = none.
func (h *harness) holdsTo(book uint32, address string, path ...uint32) string {
	h.t.Helper()
	to := h.fake.Destinations()
	best := longest(to, book, address)
	if best == nil {
		return ""
	}
	for _, r := range best.Rules {
		if r.PortFrom != 0 {
			continue // the tests use no port
		}
		scopes := path
		if r.Rule&enforce.RuleEverybody != 0 {
			scopes = []uint32{0}
		}
		for _, scope := range scopes {
			for _, u := range to.Uses {
				if u.Rule == r.Rule && u.Scope == scope {
					h.mu.Lock()
					defer h.mu.Unlock()
					return h.nodes.Get(u.Node).res.Subject.String()
				}
			}
		}
	}
	return ""
}

// scopeFor returns the node that a destination limit is under.
func (h *harness) scopeFor(subject string) uint32 {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := range h.nodes.All() {
		if n.res.Subject.String() == subject {
			return n.id
		}
	}
	return 0
}

func TestSetTo(t *testing.T) {
	testutil.RequireRoot(t) // its processes have to be root's
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	child := sleeper(t)
	of := pidSubject(child)
	h.mustSet(root, "to:10.0.0.0/8", up(1e6))
	h.mustSet(root, "to:any,!10.9.0.0/16@"+of, up(2e6))
	h.mustSet(root, "to:10.1.0.0/16@"+of, up(3e6))
	h.mustSet(root, "to:any@user:root", up(4e6))
	tree, user := h.scopeFor(of), h.scopeFor("user:root")
	check := func(h *harness) {
		t.Helper()
		require.Equal(t, "to:10.1.0.0/16@"+of, h.holdsTo(enforce.BookAdmin, "10.1.2.3", tree, user), "the longest prefix")
		require.Equal(t, "to:any,!10.9.0.0/16@"+of, h.holdsTo(enforce.BookAdmin, "192.0.2.1", tree, user), "of two the innermost")
		require.Equal(t, "to:any,!10.9.0.0/16@"+of, h.holdsTo(enforce.BookAdmin, "2001:db8::1", tree, user))
		require.Equal(t, "to:10.0.0.0/8", h.holdsTo(enforce.BookAdmin, "10.9.2.3", tree, user), "left out there")
		require.Equal(t, "to:any@user:root", h.holdsTo(enforce.BookAdmin, "192.0.2.1", user))
		require.Equal(t, "to:10.0.0.0/8", h.holdsTo(enforce.BookAdmin, "10.1.2.3"), "others")
		require.Empty(t, h.holdsTo(enforce.BookAdmin, "192.0.2.1"), "others")
	}
	check(h)

	// The list omits nodes that exist only as scopes of destination limits.
	list, err := h.Nodes(t.Context(), root)
	require.NoError(t, err)
	require.Len(t, list.Nodes, 4)
	for _, n := range list.Nodes {
		require.Equal(t, api.KindTo, n.Subject.Kind)
	}
	shown, err := h.nodesFor(of)
	require.NoError(t, err)
	require.Len(t, shown, 4, "its own, its user's and everybody's")
	shown, err = h.nodesFor("to:any@user:root")
	require.NoError(t, err)
	require.Len(t, shown, 1)
	_, err = h.nodesFor("to:192.0.2.0/24")
	testutil.RequireCode(t, api.CodeNoLimit, err)

	// The next daemon finds everything unchanged.
	calls := fake.Calls("SetNode") + fake.Calls("RemoveNode")
	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	check(h)
	require.Equal(t, calls, fake.Calls("SetNode")+fake.Calls("RemoveNode"))

	// A limit on the scope itself is set and lifted independently.
	h.mustSet(root, "user:root", up(9e6))
	_, err = h.remove(root, "user:root")
	require.NoError(t, err)
	require.Equal(t, user, h.scopeFor("user:root"))
	_, err = h.remove(root, "user:root")
	testutil.RequireCode(t, api.CodeNoLimit, err)
	check(h)
	_, err = h.remove(root, "to:any@user:root")
	require.NoError(t, err)
	require.Zero(t, h.scopeFor("user:root"))
	require.Empty(t, h.holdsTo(enforce.BookAdmin, "192.0.2.1", user))

	// The destination limits of a process end with it.
	fake.SetStats(enforce.NodeStats{ID: tree})
	end(child)
	h.eventually("the process's limits end", func() bool { return h.count() == 1 })
	answer, err := h.set(root, "to:10.0.0.0/8", up(0))
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.Zero(t, h.count())
	require.Empty(t, fake.Destinations().Uses)
}

func TestSetToOfTwoOwners(t *testing.T) {
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	bob := auth.Actor{UID: 12345}
	node := h.mustSet(bob, "to:10.0.0.0/8", up(1e6))
	require.Equal(t, "to:10.0.0.0/8@user:12345", node.Subject.String(), "of their own processes")
	h.mustSet(root, "to:10.0.0.0/8@user:12345", up(2e6))
	h.mustSet(root, "to:10.0.0.0/8", up(3e6))
	require.Equal(t, node.Subject.String(), h.holdsTo(bob.UID, "10.0.0.1"))
	require.Equal(t, node.Subject.String(), h.holdsTo(enforce.BookAdmin, "10.0.0.1", h.scopeFor("user:12345")))
	require.Equal(t, 4, h.count(), "one each, and the user")
	_, err := h.remove(auth.Actor{UID: 54321}, "to:10.0.0.0/8@user:12345")
	testutil.RequireCode(t, api.CodeDenied, err)
	answer, err := h.remove(bob, "to:10.0.0.0/8")
	require.NoError(t, err)
	require.NotEmpty(t, answer.Warnings, "the administrator's stays")
	require.Equal(t, 3, h.count())
	_, err = h.remove(bob, "to:10.0.0.0/8")
	testutil.RequireCode(t, api.CodeDenied, err)
	h.mustSet(bob, "to:10.0.0.0/8", up(1e6))
	_, err = h.remove(root, "to:10.0.0.0/8@user:12345")
	require.NoError(t, err)
	require.Equal(t, 1, h.count(), "root lifts both")
}

func TestSetToComesBackAfterABoot(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	child := sleeper(t)
	h.mustSet(root, "to:10.0.0.0/8", up(1e6))
	h.mustSet(root, "to:any@user:root", up(2e6))
	h.mustSet(root, "to:any@"+pidSubject(child), up(3e6))
	w := up(4e6)
	w.Persist = ptr(false)
	h.mustSet(root, "to:any@user:12345", w)
	_, err := h.set(root, "to:10.1.0.0/16@"+pidSubject(child), api.Wish{UpBytesPerSec: ptr(uint64(1)), Persist: ptr(true)})
	testutil.RequireCode(t, api.CodeBadRequest, err)
	require.NoError(t, h.stop())
	data, err := os.ReadFile(h.file.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.file.Path(), []byte(strings.Replace(string(data), h.boot, "another", 1)), 0o600))
	fake = new(enforcetest.Kernel)
	opts.OpenKernel = fake.Open
	h = start(t, fake, opts)
	require.Equal(t, 3, h.count())
	require.Equal(t, "to:any@user:root", h.holdsTo(enforce.BookAdmin, "192.0.2.1", h.scopeFor("user:root")))
	require.Equal(t, "to:10.0.0.0/8", h.holdsTo(enforce.BookAdmin, "10.0.0.1"))
	require.Zero(t, h.scopeFor("user:12345"))
}

func TestSetToChangesNothingWhereItCannot(t *testing.T) {
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	fake.Fail("SetDestinations", fmt.Errorf("no memory"))
	_, err := h.set(root, "to:10.0.0.0/8@user:root", up(1e6))
	require.ErrorContains(t, err, "no memory")
	fake.Fail("SetDestinations", nil)
	h.eventually("nothing is left", func() bool { return h.count() == 0 })
	for i := range enforce.MostDestinationRules {
		h.mustSet(root, fmt.Sprintf("to:10.0.0.0/8:%d", i+1), up(1e6))
	}
	_, err = h.set(root, "to:any", up(1e6))
	testutil.RequireCode(t, api.CodeConflict, err)
	require.Equal(t, enforce.MostDestinationRules, h.count())
	dry, err := h.Set(t.Context(), root, api.SetRequest{Subject: api.Subject{Kind: api.KindTo, ID: "192.0.2.0/24@user:root"}, Wish: up(1e6), DryRun: true})
	require.NoError(t, err)
	require.True(t, dry.Changed)
	require.Equal(t, enforce.MostDestinationRules, h.count())
}

func TestSetToFile(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	const subject = "file:/lan.txt@user:root"
	set := func(w api.Wish, prefixes ...string) (api.SetResponse, error) {
		return h.Set(t.Context(), root, api.SetRequest{Subject: api.Subject{Kind: api.KindTo, ID: subject}, Wish: w, Prefixes: prefixes})
	}
	_, err := set(up(1e6))
	testutil.RequireCode(t, api.CodeBadRequest, err)
	_, err = set(up(1e6), "10.0.0.0/8", "10.0.0.0/99")
	testutil.RequireCode(t, api.CodeBadRequest, err)
	require.Zero(t, h.count(), "nothing is changed")
	holds := func(address string) bool {
		return h.holdsTo(enforce.BookAdmin, address, h.scopeFor("user:root")) == "to:"+subject
	}
	answer, err := set(up(1e6), "10.0.0.0/8", "2001:db8::/32")
	require.NoError(t, err)
	require.Equal(t, 2, answer.LoadedPrefixes)
	require.Equal(t, 2, answer.Node.ListedPrefixes)
	require.True(t, holds("10.0.0.1") && holds("2001:db8::1"))
	require.False(t, holds("192.0.2.1"))

	answer, err = set(up(2e6))
	require.NoError(t, err)
	require.Zero(t, answer.LoadedPrefixes, "another rate needs none")
	fake.Fail("SetDestinations", fmt.Errorf("no memory"))
	_, err = set(up(2e6), "192.0.2.0/24")
	require.Error(t, err)
	fake.Fail("SetDestinations", nil)
	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	require.True(t, holds("10.0.0.1"), "the next daemon has read what was in force")
	require.False(t, holds("192.0.2.1"))

	answer, err = set(up(2e6), "192.0.2.0/24")
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.True(t, holds("192.0.2.1"))
	require.False(t, holds("10.0.0.1"))
	_, err = h.remove(root, "to:"+subject)
	require.NoError(t, err)
	require.NoDirExists(t, opts.StateDir+"/lists")
}

// A node that is set in the place of a lost one is another node to the kernel. So the kernel is told again which nodes
// hold for which destination.
func TestLostDestinationIsAssignedAgain(t *testing.T) {
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	id := h.mustSet(root, "to:10.0.0.0/8", up(1e6)).ID
	calls := fake.Calls("SetDestinations")
	fake.Drop(id)
	h.eventually("it is set and assigned", func() bool {
		_, ok := fake.Spec(id)
		return ok && fake.Calls("SetDestinations") > calls
	})
}
