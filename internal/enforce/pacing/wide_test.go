package pacing

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// The limits that may be around a node are those on users, cgroups, the host and links. If there are very many such
// nodes, wideNodes returns only some.
func TestWideNodes(t *testing.T) {
	limited := func(kind uint32) bpf.Node {
		n := bpf.Node{Kind: kind}
		n.Limits[enforce.OwnerAdmin][bpf.DirectionUp].CeilingBytesPerSec = 1e6
		return n
	}
	nodes := map[uint32]bpf.Node{
		1: limited(bpf.KindTree), 2: limited(bpf.KindUser), 3: limited(bpf.KindCgroup), 4: limited(bpf.KindHost),
		5: limited(bpf.KindLink), 6: limited(bpf.KindDestination), 7: {Kind: bpf.KindUser},
	}
	list := wideNodes(nodes)
	slices.Sort(list)
	require.Equal(t, []uint32{2, 3, 4, 5}, list)

	for id := uint32(10); id < 1000; id++ {
		nodes[id] = limited(bpf.KindUser)
	}
	require.Len(t, wideNodes(nodes), mostAround+1)
	require.Empty(t, wideNodes(map[uint32]bpf.Node{1: nodes[1], 7: nodes[7]}))
}
