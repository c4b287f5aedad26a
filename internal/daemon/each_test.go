package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/limit"
)

func (h *harness) setEach(by auth.Actor, subject string, w api.Wish) {
	h.t.Helper()
	s, err := api.ParseSubject(subject)
	require.NoError(h.t, err)
	_, err = h.Set(context.Background(), by, api.SetRequest{Subject: s, Wish: w})
	require.NoError(h.t, err)
}

// Each peer address has a node with the requested limit; no other address has one.
func TestEach(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	fake.SetPeers(here(t, "192.0.2.7", "2001:db8::7", "2001:db8::8")...)
	up, down := uint64(1e6), uint64(2e6)
	h.setEach(root, "to:any:443/tcp/each", api.Wish{UpBytesPerSec: &up, DownBytesPerSec: &down})
	require.Eventually(t, func() bool {
		return h.upTo("to:192.0.2.7:443/tcp") == 1e6 && h.upTo("to:[2001:db8::/64]:443/tcp") == 1e6
	}, soon, poll)
	require.EqualValues(t, limit.NeverReached, h.upTo("to:any:443/tcp/each"), "of all together nothing is held")
	list, err := h.Nodes(context.Background(), root)
	require.NoError(t, err)
	require.Len(t, list.Nodes, 3)
	for _, n := range list.Nodes {
		require.EqualValues(t, 1e6, n.Limits[0].BytesPerSec, "it is shown as it was wanted")
		spec, ok := fake.Spec(n.ID)
		require.True(t, ok)
		require.Equal(t, n.Subject.String() == "to:any:443/tcp/each", spec.Each)
	}

	up = 3e6
	h.setEach(root, "to:any:443/tcp/each", api.Wish{UpBytesPerSec: &up})
	require.Eventually(t, func() bool { return h.upTo("to:192.0.2.7:443/tcp") == 3e6 }, soon, poll)

	require.NoError(t, h.stop())
	again := start(t, fake, h.opts)
	require.EqualValues(t, 3e6, again.upTo("to:192.0.2.7:443/tcp"), "the next daemon has them")

	s, err := api.ParseSubject("to:any:443/tcp/each")
	require.NoError(t, err)
	_, err = again.Remove(context.Background(), root, s, false)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		list, err := again.Nodes(context.Background(), root)
		return err == nil && len(list.Nodes) == 0
	}, soon, poll)
}

// A limit that was set for one address by itself stays unchanged.
func TestEachLeavesOthers(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	fake.SetPeers(here(t, "192.0.2.7", "192.0.2.8")...)
	up := uint64(5e6)
	h.setEach(root, "to:192.0.2.7", api.Wish{UpBytesPerSec: &up})
	up = 1e6
	h.setEach(root, "to:192.0.2.0/24/each", api.Wish{UpBytesPerSec: &up})
	require.Eventually(t, func() bool { return h.upTo("to:192.0.2.8") == 1e6 }, soon, poll)
	require.EqualValues(t, 5e6, h.upTo("to:192.0.2.7"))
	s, err := api.ParseSubject("to:192.0.2.0/24/each")
	require.NoError(t, err)
	_, err = h.Remove(context.Background(), root, s, false)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.upTo("to:192.0.2.8") == 0 }, soon, poll)
	require.EqualValues(t, 5e6, h.upTo("to:192.0.2.7"))
}

// An unused node ends after its time.
func TestEachForgets(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	var forward atomic.Int64 // ns
	opts.now = func() time.Time { return time.Now().Add(time.Duration(forward.Load())) }
	h := start(t, fake, opts)
	fake.SetPeers(here(t, "192.0.2.7")...)
	up := uint64(1e6)
	h.setEach(root, "to:any/each", api.Wish{UpBytesPerSec: &up})
	require.Eventually(t, func() bool { return h.upTo("to:192.0.2.7") == 1e6 }, soon, poll)
	fake.SetPeers()
	forward.Store(int64(2 * time.Minute))
	h.peers.Wake()
	require.Eventually(t, func() bool { return h.upTo("to:192.0.2.7") == 0 }, soon, poll)
}

// Many addresses that appear at the same time all have nodes soon.
func TestEachOfMany(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	var addresses []string
	for i := range 200 {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250))
	}
	fake.SetPeers(here(t, addresses...)...)
	up := uint64(1e6)
	h.setEach(root, "to:any/each", api.Wish{UpBytesPerSec: &up})
	require.Eventually(t, func() bool {
		list, err := h.Nodes(context.Background(), root)
		return err == nil && len(list.Nodes) == len(addresses)+1
	}, 10*soon, poll)
}
