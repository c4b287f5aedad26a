package observe

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/rules"
)

// The index finds what a search through all nodes finds, in the same order.
func TestAroundIsASearch(t *testing.T) {
	h := newHarness(t)
	mount, err := h.resolver.CgroupRoot()
	require.NoError(t, err)
	here, err := h.resolver.ProcessCgroup(os.Getpid())
	require.NoError(t, err)
	folders := []string{"", mount, mount + "/a", mount + "/a/b", mount + "/ab", filepath.Join(mount, here), filepath.Dir(filepath.Join(mount, here))}
	ancestors := h.resolver.Ancestors(os.Getpid())
	rule := rules.Origin{Key: "k"}
	rapid.Check(t, func(t *rapid.T) {
		subject := func() identity.Resolved {
			kind := rapid.SampledFrom([]enforce.Kind{enforce.KindHost, enforce.KindLink, enforce.KindUser, enforce.KindTree, enforce.KindCgroup, enforce.KindDestination}).Draw(t, "kind")
			res := identity.Resolved{Kind: kind, UID: rapid.Uint32Range(0, 2).Draw(t, "uid"), Key: rapid.Uint64Range(0, 4).Draw(t, "key")}
			switch kind {
			case enforce.KindTree:
				a := rapid.SampledFrom(ancestors).Draw(t, "ancestor")
				res.Key, res.StartBoottimeNS = uint64(a.PID), a.StartBoottimeNS+identity.TickNS*rapid.Uint64Range(0, 1).Draw(t, "later")
			case enforce.KindCgroup:
				res.Dir = rapid.SampledFrom(folders).Draw(t, "folder")
			}
			return res
		}
		changed := map[uint32]*Node{}
		for id := range uint32(rapid.IntRange(1, 12).Draw(t, "nodes")) {
			n := &Node{ID: id + 1, Resolved: subject()}
			n.Users.OnlyUser, n.Users.Owner = rapid.Bool().Draw(t, "own"), rapid.Uint32Range(0, 2).Draw(t, "owner")
			switch {
			case n.Kind == enforce.KindDestination && rapid.Bool().Draw(t, "by a command"):
				n.To = &Destination{Under: rapid.Uint32Range(0, 12).Draw(t, "under"), OfAll: rapid.Bool().Draw(t, "of all")}
			case n.Kind == enforce.KindDestination:
				n.Rules.Destined = 1 | enforce.RuleEverybody*uint32(countOf(rapid.Bool().Draw(t, "everybody")))
				n.Rules.Limiting[enforce.OwnerAdmin] = []rules.Origin{rule}
			case rapid.Bool().Draw(t, "meant"):
				n.Rules.Meant[enforce.OwnerAdmin] = []rules.Origin{rule}
			}
			n.Guaranteed[enforce.Up] = rapid.Uint64Range(0, 3).Draw(t, "guarantee")
			n.Holding[enforce.OwnerAdmin].Up = rapid.Uint64Range(0, 1).Draw(t, "limit")
			changed[n.ID] = n
		}
		s := Empty().With(changed, nil)
		h.mem.trees = rapid.SliceOfN(rapid.Uint32Range(0, 12), 0, 3).Draw(t, "trees")
		now := Sample{Sockets: []enforce.SocketStats{{PID: uint32(os.Getpid()), Nodes: rapid.SliceOfN(rapid.Uint32Range(0, 12), 0, 3).Draw(t, "of a socket")}}}
		for range 3 {
			res := subject()
			if rapid.Bool().Draw(t, "the test itself") {
				res.Kind, res.Key = enforce.KindTree, uint64(os.Getpid())
			}
			var list []*Node
			if inner := s.Node(rapid.Uint32Range(0, 12).Draw(t, "inner")); inner != nil {
				list = append(list, inner)
			}
			want := aroundByScan(h.Observer, s.All(), slices.Clone(list), res, now)
			require.Equal(t, want, h.Around(s, list, res, now), "%+v", res)
		}
		for outer := range uint32(14) {
			require.Equal(t, h.Guarantees(s, enforce.Up).In(outer, 1), h.GuaranteedIn(s, outer, 1, enforce.Up))
		}
	})
}

// aroundByScan is Around by a search through all nodes, in their order.
func aroundByScan(o *Observer, all, list []*Node, res identity.Resolved, now Sample) []*Node {
	e := scan{all: all, list: list}
	cgroup := res.Dir
	there := uint32(0)
	if res.Kind == enforce.KindTree {
		pid := int(res.Key)
		addTrees(o, &e, pid, res.UID, now)
		if root, err := o.resolver.CgroupRoot(); err == nil {
			if rel, err := o.resolver.ProcessCgroup(pid); err == nil {
				cgroup = root + rel
			}
		}
		there, _ = netnamespace.Of(strconv.Itoa(pid)) // 0 for an ended process: the links of all namespaces
	}
	if cgroup != "" {
		e.addCgroups(cgroup)
	}
	e.add(func(n *Node) bool {
		return res.Kind == enforce.KindTree && n.Kind == enforce.KindUser && n.UID == res.UID
	})
	e.add(func(n *Node) bool { return n.Kind == enforce.KindHost })
	for _, outer := range slices.Clone(e.list) {
		e.add(func(n *Node) bool { return n.isUnder(outer) })
	}
	e.add(func(n *Node) bool {
		ns, _ := enforce.LinkOf(n.Key)
		return n.Kind == enforce.KindLink && (there == 0 || ns == there)
	})
	return e.list
}

// scan collects the nodes that enclose a subject.
type scan struct {
	all, list []*Node
}

// add appends the nodes that fulfil a condition, in order.
func (e *scan) add(match func(*Node) bool) {
	for _, n := range e.all {
		if match(n) && !slices.Contains(e.list, n) {
			e.list = append(e.list, n)
		}
	}
}

// addTrees appends the trees that a process is in, and the limits on destinations that hold for it. Only the kernel
// knows all forks, since parents may have ended. The trees of the process's sockets therefore come first, then those of
// the living parents.
func addTrees(o *Observer, e *scan, pid int, uid uint32, now Sample) {
	for _, id := range o.kernel.Trees(pid) {
		e.add(func(n *Node) bool { return n.ID == id })
	}
	known := make(map[uint32]bool) // most sockets of a program have the same nodes
	for _, s := range now.Sockets {
		if int(s.PID) != pid {
			continue
		}
		for _, id := range s.Nodes {
			if !known[id] {
				known[id] = true
				e.add(func(n *Node) bool { return n.ID == id && n.Kind == enforce.KindTree })
			}
		}
	}
	for _, tree := range slices.Clone(e.list) {
		e.add(func(n *Node) bool { return n.Concerns(tree) })
	}
	e.add(func(n *Node) bool { return n.concernsUser(uid) })
	for _, a := range o.resolver.Ancestors(pid) {
		e.add(func(n *Node) bool {
			return n.Kind == enforce.KindTree && int(n.Key) == a.PID && identity.SameStart(n.StartBoottimeNS, a.StartBoottimeNS)
		})
	}
}

// addCgroups appends the nodes on a cgroup and on those that enclose it, innermost first.
func (e *scan) addCgroups(cgroup string) {
	first := len(e.list)
	e.add(func(n *Node) bool {
		return n.Kind == enforce.KindCgroup && n.Dir != "" && strings.HasPrefix(cgroup+"/", n.Dir+"/")
	})
	slices.SortStableFunc(e.list[first:], func(a, b *Node) int { return len(b.Dir) - len(a.Dir) })
}
