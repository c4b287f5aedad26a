package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// of returns the nodes in force of a kind, by subject.
func (c *clerk) of(kind enforce.Kind) map[uint64]enforce.NodeSpec {
	c.t.Helper()
	specs, err := c.fake.Nodes()
	require.NoError(c.t, err)
	out := map[uint64]enforce.NodeSpec{}
	for _, s := range specs {
		if s.Kind == kind {
			out[s.Subject] = s
		}
	}
	return out
}

// longest returns the longest prefix of a rule set that contains an address, nil if none does.
func longest(to enforce.Destinations, book uint32, address string) (best *enforce.DestinationPrefix) {
	a := netip.MustParseAddr(address)
	for i, p := range to.Prefixes {
		if p.Book == book && p.Prefix.Contains(a) && (best == nil || p.Prefix.Bits() > best.Prefix.Bits()) {
			best = &to.Prefixes[i]
		}
	}
	return best
}

// towards returns the limit on what a process sends to an address, 0 = none, as the kernel side finds it in the maps.
func (c *clerk) towards(pid int, book uint32, address string, port uint16) uint64 {
	c.t.Helper()
	to := c.fake.Destinations()
	best := longest(to, book, address)
	if best == nil {
		return 0
	}
	trees := append(c.fake.Trees(pid), 0)
	for _, r := range best.Rules {
		if port < r.PortFrom || port > r.PortTo {
			continue
		}
		for _, scope := range trees {
			for _, u := range to.Uses {
				if u.Rule == r.Rule && u.Scope == scope {
					spec, _ := c.fake.Spec(u.Node)
					return spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec + spec.Ceilings[enforce.OwnerUser][enforce.Up].BytesPerSec
				}
			}
		}
	}
	return 0
}

func TestDestinedRules(t *testing.T) {
	a, b := name("a"), name("b")
	text := fmt.Sprintf(`
[[rule]]
name = "home"
program = "%[1]s"
to = "10.9.0.0/16"
up = "none"
[[rule]]
name = "each"
program = "%[1]s"
to = "10.0.0.0/8"
up = "1MB/s"
[[rule]]
name = "all"
program = ["%[1]s", "%[2]s"]
port = "443"
share = "all"
up = "2MB/s"
[[rule]]
name = "everybody"
to = "192.0.2.0/24"
up = "3MB/s"
`, a, b)
	c := newClerk(t, new(enforcetest.Kernel), text, nil)
	first, second, other := c.started(a), c.started(a), c.started(b)
	check := func(each uint64) {
		t.Helper()
		for _, pid := range []int{first, second} {
			require.EqualValues(t, each, c.towards(pid, enforce.BookAdmin, "10.0.0.1", 443))
			require.EqualValues(t, 2e6, c.towards(pid, enforce.BookAdmin, "172.16.0.1", 443))
			require.Zero(t, c.towards(pid, enforce.BookAdmin, "10.9.0.1", 443), "the first rule lets it free")
			require.Zero(t, c.towards(pid, enforce.BookAdmin, "172.16.0.1", 80))
		}
		require.EqualValues(t, 2e6, c.towards(other, enforce.BookAdmin, "10.0.0.1", 443))
		require.Zero(t, c.towards(other, enforce.BookAdmin, "10.0.0.1", 80))
		require.EqualValues(t, 3e6, c.towards(1, enforce.BookAdmin, "192.0.2.1", 80))
	}
	check(1e6)
	before := c.of(enforce.KindDestination)
	require.Len(t, before, 4, "two of each, one of all, one of everybody")
	require.Len(t, c.of(enforce.KindTree), 3)

	// Lists show the rules' nodes, and leave out the nodes that only mark whose connections are meant.
	list, err := c.Nodes(t.Context(), root)
	require.NoError(t, err)
	require.Len(t, list.Nodes, 4)
	for _, n := range list.Nodes {
		require.Equal(t, api.KindRule, n.Subject.Kind)
	}
	holding, err := c.nodesFor(fmt.Sprint("pid:", other))
	require.NoError(t, err)
	require.Len(t, holding, 2)
	test, err := c.TestRules(t.Context(), root, first)
	require.NoError(t, err)
	require.Len(t, test.Rules, 4)
	for _, r := range test.Rules {
		require.True(t, r.Holds, r.Name)
		require.NotEmpty(t, r.Connections)
	}

	// Another rate leaves the same nodes, and changes nothing else in the kernel.
	calls := c.fake.Calls("RemoveNode")
	c.Write(strings.Replace(text, "1MB/s", "5MB/s", 1))
	c.reload()
	check(5e6)
	require.Equal(t, keys(before), keys(c.of(enforce.KindDestination)))
	require.Equal(t, calls, c.fake.Calls("RemoveNode"))

	// A rule with another destination has another node; the other nodes stay.
	c.Write(strings.Replace(text, "192.0.2.0/24", "198.51.100.0/24", 1))
	c.reload()
	require.EqualValues(t, 3e6, c.towards(1, enforce.BookAdmin, "198.51.100.1", 80))
	require.Zero(t, c.towards(1, enforce.BookAdmin, "192.0.2.1", 80))
	require.Equal(t, calls+1, c.fake.Calls("RemoveNode"))

	c.Write("")
	c.reload()
	require.Zero(t, c.count())
	require.Empty(t, c.fake.Destinations())
	require.Empty(t, c.of(enforce.KindDestination))
}

// A user's own file is a rule set of its own, for all of the user's sockets or for some trees.
func TestDestinedRulesOfAUser(t *testing.T) {
	testutil.RequireRoot(t)
	const uid = 1019
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), "[[rule]]\nport = 443\nup = '1MB/s'\n", nil)
	c.WriteOwn(uid, fmt.Sprintf("[[rule]]\nname = 'mine'\nport = 443\nup = '2MB/s'\n[[rule]]\nname = 'of a'\nprogram = '%s'\nport = 80\nup = '3MB/s'\n", a))
	c.reload()
	pid := c.Run(a, uid)
	c.fake.Exec(pid)
	c.settled()
	require.EqualValues(t, 1e6, c.towards(pid, enforce.BookAdmin, "10.0.0.1", 443))
	require.EqualValues(t, 2e6, c.towards(pid, uid, "10.0.0.1", 443))
	require.EqualValues(t, 3e6, c.towards(pid, uid, "10.0.0.1", 80))
	for _, s := range c.of(enforce.KindDestination) {
		require.Equal(t, s.Ceilings[enforce.OwnerAdmin] == [enforce.Directions]enforce.Ceiling{}, s.Own)
	}
	c.WriteOwn(uid, "")
	c.reload()
	require.Len(t, c.of(enforce.KindDestination), 1)
	require.Zero(t, c.towards(pid, uid, "10.0.0.1", 443))
}

// The nodes of a tree end with the tree. The next daemon finds all nodes as it would make them itself.
func TestDestinedRulesOutlive(t *testing.T) {
	a := name("a")
	fake := new(enforcetest.Kernel)
	var opts Options
	text := rule(a, "port = 443\nup = '1MB/s'")
	c := newClerk(t, fake, text, func(o *Options) { opts = *o })
	pid := c.started(a)
	before, to := c.of(enforce.KindDestination), c.fake.Destinations()
	require.Len(t, before, 1)
	require.NoError(t, c.stop())
	opts.RulesDir = c.System()
	c.Write("[[rule]]") // wrong from the start: the limits in force stay
	c.harness = start(t, fake, opts)
	c.eventually("the rules are read", c.haveRead)
	require.Equal(t, before, c.of(enforce.KindDestination))
	require.NoError(t, c.stop())
	c.Write(text)
	c.harness = start(t, fake, opts)
	c.eventually("the rules are read", c.haveRead)
	c.reload()
	require.Equal(t, before, c.of(enforce.KindDestination))
	require.Equal(t, to, c.fake.Destinations())
	require.Zero(t, fake.Calls("RemoveNode"))

	p, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	_, _ = p.Wait()
	for _, n := range c.of(enforce.KindTree) {
		fake.SetStats(enforce.NodeStats{ID: n.ID})
	}
	c.eventually("all is gone with the process", func() bool { return c.count() == 0 })
	require.Empty(t, c.fake.Destinations().Uses)
}

// Only trees that rules for a part of the traffic match are compared with these rules.
func TestDestinedTrees(t *testing.T) {
	a, b := name("a"), name("b")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "port = 443\nup = '1MB/s'")+rule(b, "up = '1MB/s'"), nil)
	pid := c.started(a)
	c.started(b)
	require.Len(t, c.of(enforce.KindTree), 2)
	c.mu.Lock()
	defer c.mu.Unlock()
	var trees []uint64
	for tree := range (destinationHost{c.Daemon}).Trees {
		trees = append(trees, tree.Key)
	}
	require.Equal(t, []uint64{uint64(pid)}, trees)
}

func keys(of map[uint64]enforce.NodeSpec) map[uint64]uint32 {
	out := map[uint64]uint32{}
	for key, s := range of {
		out[key] = s.ID
	}
	return out
}
