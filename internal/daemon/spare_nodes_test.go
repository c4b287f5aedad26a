package daemon

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// stocked lists the preallocated nodes of the kernel side, by their limit.
func stocked(t *testing.T, fake *enforcetest.Kernel) map[uint32][]enforce.NodeSpec {
	t.Helper()
	nodes, err := fake.Nodes()
	require.NoError(t, err)
	out := map[uint32][]enforce.NodeSpec{}
	for _, spec := range nodes {
		if spec.Store != 0 {
			require.Zero(t, spec.Subject)
			require.False(t, spec.Each)
			out[spec.Store] = append(out[spec.Store], spec)
		}
	}
	return out
}

// A limit for each address has preallocated nodes with its present settings. They are not shown as limits, and become
// limits when addresses get them. They stay for the next daemon, and go with the limit.
func TestStock(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	up, down := uint64(1e6), uint64(2e6)
	h.setEach(root, "to:any/each", api.Wish{UpBytesPerSec: &up, DownBytesPerSec: &down})
	full := func(rate uint64) func() bool {
		return func() bool {
			for _, list := range stocked(t, fake) {
				is := func(s enforce.NodeSpec) bool {
					c := s.Ceilings[enforce.OwnerAdmin]
					return c[enforce.Up].BytesPerSec == rate && c[enforce.Down].BytesPerSec == 2e6
				}
				return len(list) == enforce.MostStored && !slices.ContainsFunc(list, func(s enforce.NodeSpec) bool { return !is(s) })
			}
			return false
		}
	}
	require.Eventually(t, full(1e6), soon, poll)
	list, err := h.Nodes(context.Background(), root)
	require.NoError(t, err)
	require.Len(t, list.Nodes, 1, "they are no limits yet")

	up = 3e6
	h.setEach(root, "to:any/each", api.Wish{UpBytesPerSec: &up})
	require.Eventually(t, full(3e6), soon, poll)

	var got enforce.NodeSpec
	for _, list := range stocked(t, fake) {
		got = list[7]
	}
	fake.SetPeers(enforce.Peer{Address: netip.MustParseAddr("192.0.2.7"), Node: got.ID}, here(t, "192.0.2.7")[0])
	h.peers.Wake()
	require.Eventually(t, func() bool { return h.upTo("to:192.0.2.7") == 3e6 && full(3e6)() }, soon, poll)
	made, ok := fake.Spec(got.ID)
	require.True(t, ok)
	require.Zero(t, made.Store)
	require.NotZero(t, made.Subject)
	fake.SetPeers()

	before := stocked(t, fake)
	require.NoError(t, h.stop())
	again := start(t, fake, h.opts)
	require.EqualValues(t, 3e6, again.upTo("to:192.0.2.7"))
	require.Eventually(t, full(3e6), soon, poll)
	for each, list := range stocked(t, fake) {
		ids := map[uint32]bool{}
		for _, s := range append(list, before[each]...) {
			ids[s.ID] = true
		}
		require.Len(t, ids, enforce.MostStored, "the same ones")
	}
	s, err := api.ParseSubject("to:any/each")
	require.NoError(t, err)
	_, err = again.Remove(context.Background(), root, s, false)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(stocked(t, fake)) == 0 }, soon, poll)
}

// A user has fewer nodes, however many limits, and there is room for those of other users.
func TestStockOfUsers(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	up := uint64(1e6)
	sizes := func() []int {
		var sizes []int
		for _, list := range stocked(t, fake) {
			sizes = append(sizes, len(list))
		}
		slices.Sort(sizes)
		return sizes
	}
	for _, to := range []string{"to:192.0.2.0/26/each", "to:192.0.2.64/26/each", "to:192.0.2.128/26/each", "to:192.0.2.192/26/each", "to:198.51.100.0/24/each"} {
		h.setEach(auth.Actor{UID: 1000}, to, api.Wish{UpBytesPerSec: &up})
	}
	require.Eventually(t, func() bool { return slices.Equal(sizes(), []int{16, 16, 16, 16}) }, soon, poll)
	h.setEach(root, "to:any/each", api.Wish{UpBytesPerSec: &up})
	require.Eventually(t, func() bool { return slices.Equal(sizes(), []int{16, 16, 16, 16, 64}) }, soon, poll)
}
