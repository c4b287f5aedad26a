package observe

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// The sum of a link's guarantees is computed once for all links in a list, and not at all without a limited link: it
// requires a look at every node for every guarantee.
func TestPromisesAreFoundOnce(t *testing.T) {
	limited := func(id uint32, kind enforce.Kind) *Node {
		n := &Node{ID: id, Resolved: identity.Resolved{Kind: kind}}
		n.Holding[enforce.OwnerAdmin].Up = 10e6
		return n
	}
	link, other, user := limited(1, enforce.KindLink), limited(2, enforce.KindLink), limited(3, enforce.KindUser)
	found := 0
	all := sync.OnceValue(func() Guarantees {
		found++
		return Guarantees{
			nodes: []promise{
				{user, 3e6, []*Node{link}},
				{limited(4, enforce.KindUser), 2e6, []*Node{link, other}},
				{link, 5e6, []*Node{link}}, // its own is no part of it
			},
			sockets: []enforce.SocketReservation{{Link: 1, BytesPerSec: 1e6}, {Link: 2, BytesPerSec: 4e5}, {Link: 9, BytesPerSec: 7e6}},
		}
	})
	promised, most := user.promises(all)
	require.Zero(t, promised+most)
	require.Zero(t, found)
	promised, most = link.promises(all)
	require.EqualValues(t, 6e6, promised)
	require.EqualValues(t, 9.5e6, most)
	promised, _ = other.promises(all)
	require.EqualValues(t, 2.4e6, promised)
	require.Equal(t, 1, found)
	require.EqualValues(t, 3e6, all().In(link.ID, 4)-1e6, "to others than that one")
}
