package observe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/testutil"
)

// A slow reader learns how many events it has missed, and where. No more than eventsKept of its events are kept.
func TestEventsMissed(t *testing.T) {
	h := hub{leaving: errLeaving}
	require.False(t, h.heard())
	l, err := h.listen(root, func() {}, api.Event{Type: api.EventHello})
	require.NoError(t, err)
	require.True(t, h.heard())
	for range 1000 {
		h.tell(Everybody(), api.Event{Type: api.EventLimitSet})
	}
	list, more := h.take(l)
	require.True(t, more)
	require.Len(t, list, eventsKept+1)
	require.Equal(t, api.EventMissed, list[eventsKept].Type)
	require.EqualValues(t, 1000-(eventsKept-1), list[eventsKept].Count)
	h.tell(Everybody(), api.Event{Type: api.EventLimitEnded})
	list, _ = h.take(l)
	require.Len(t, list, 1)
	h.tell(UsersOnly([2]uint32{5}), api.Event{Type: api.EventLimitEnded})
	list, _ = h.take(l)
	require.Len(t, list, 1, "root hears everything")

	bob := auth.Actor{UID: 5}
	for range auth.MaxStreamsPerUser {
		_, err := h.listen(bob, func() {}, api.Event{})
		require.NoError(t, err)
	}
	_, err = h.listen(bob, func() {}, api.Event{})
	testutil.RequireCode(t, api.CodeConflict, err)
	h.end()
	_, more = h.take(l)
	require.False(t, more)
	_, err = h.listen(root, func() {}, api.Event{})
	testutil.RequireCode(t, api.CodeConflict, err)
}
