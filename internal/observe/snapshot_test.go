package observe

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// Any changes of a snapshot are those of a plain map, and earlier snapshots stay as they were.
func TestSnapshotIsAMapThatStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			s     *Snapshot
			nodes map[uint32]*Node
		}
		check := func(v version) {
			ordered := slices.SortedFunc(maps.Values(v.nodes), func(a, b *Node) int {
				return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.ID, b.ID))
			})
			if len(ordered) == 0 {
				ordered = []*Node{}
			}
			require.Equal(t, ordered, v.s.All())
			require.Equal(t, len(v.nodes), v.s.Count())
			keys, cgroups := map[indexKey][]uint32{}, 0
			for _, n := range ordered {
				for _, k := range n.indexKeys() {
					keys[k] = append(keys[k], n.ID)
					slices.Sort(keys[k])
					cgroups += countOf(k.kind == keyCgroup)
				}
			}
			found := map[indexKey][]uint32{}
			for _, part := range v.s.index {
				maps.Copy(found, part)
			}
			require.Equal(t, keys, found)
			require.Equal(t, cgroups, v.s.cgroups)
		}
		versions := []version{{Empty(), map[uint32]*Node{}}}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			last := versions[len(versions)-1]
			changed, next := map[uint32]*Node{}, maps.Clone(last.nodes)
			for range rapid.IntRange(0, 3).Draw(t, "nodes") {
				id := rapid.SampledFrom([]uint32{1, 2, 3, 257, 513, 1 << 20}).Draw(t, "id")
				delete(next, id)
				if changed[id] = nil; rapid.Bool().Draw(t, "stays") {
					kind := rapid.SampledFrom([]enforce.Kind{enforce.KindTree, enforce.KindUser, enforce.KindLink, enforce.KindCgroup, enforce.KindDestination}).Draw(t, "kind")
					next[id] = &Node{ID: id, Resolved: identity.Resolved{Kind: kind, UID: id + 7*rapid.Uint32Range(0, 1).Draw(t, "uid")}}
					next[id].Dir = rapid.SampledFrom([]string{"", "/a", "/a/b"}).Draw(t, "folder")
					if kind == enforce.KindDestination {
						next[id].To = &Destination{Under: rapid.SampledFrom([]uint32{0, 1, 2}).Draw(t, "under"), OfAll: rapid.Bool().Draw(t, "of all")}
					}
					next[id].Guaranteed[enforce.Down] = rapid.Uint64Range(0, 1).Draw(t, "guarantee")
					changed[id] = next[id]
				}
			}
			if rapid.Bool().Draw(t, "a reader is there") {
				check(last)
			}
			versions = append(versions, version{last.s.With(changed, nil), next})
		}
		for _, v := range versions {
			check(v)
		}
	})
}

// A snapshot costs no order of its own where no subject has changed, and reads no mount table while nodes on cgroups
// come and go.
func TestSnapshotsShareWhatFollowsFromSubjects(t *testing.T) {
	s := Empty().With(map[uint32]*Node{1: onUser(1, 1000, 5)}, nil)
	same := s.With(map[uint32]*Node{1: onUser(1, 1000, 6)}, nil)
	require.Same(t, s.order, same.order)
	tree := s.With(map[uint32]*Node{2: {ID: 2, Resolved: identity.Resolved{Kind: enforce.KindTree}}}, nil)
	require.NotSame(t, s.order, tree.order)
	onCgroup := func(id uint32) *Node {
		return &Node{ID: id, Resolved: identity.Resolved{Kind: enforce.KindCgroup, Dir: "/a"}}
	}
	cgroup := tree.With(map[uint32]*Node{3: onCgroup(3)}, nil)
	require.Same(t, s.mount, tree.mount)
	require.NotSame(t, s.mount, cgroup.mount)
	require.Same(t, cgroup.mount, cgroup.With(map[uint32]*Node{4: onCgroup(4)}, nil).mount)
}

// A unit has restarted in a cgroup on which there is a limit by its folder. The unit's own limit keeps its former cgroup.
func TestFindPrefersWhatTheKernelKnows(t *testing.T) {
	on := func(kind api.Kind, id string, key uint64) *Node {
		return &Node{Resolved: identity.Resolved{Subject: api.Subject{Kind: kind, ID: id}, Kind: enforce.KindCgroup, Key: key}}
	}
	nodes := map[uint32]*Node{1: on(api.KindUnit, "foo.service", 5), 600: on(api.KindCgroup, "/system.slice/foo.service", 7)}
	for id, n := range nodes {
		n.ID = id
	}
	s := Empty().With(nodes, nil)
	require.Equal(t, uint32(600), s.find(on(api.KindUnit, "foo.service", 7).Resolved, nil).ID)
	require.Equal(t, uint32(1), s.find(on(api.KindUnit, "foo.service", 9).Resolved, nil).ID)
	require.Nil(t, s.find(on(api.KindUnit, "bar.service", 9).Resolved, nil))
}
