package daemon

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// The backlog of a host is bounded from the beginning, by default to a second, whatever the rate is later. The kernel
// does not report the bound, so the next daemon takes it from its file.
func TestAdaptBacklog(t *testing.T) {
	const to = "to:192.0.2.7/udp"
	h, p, fake := adaptHarness(t)
	got, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	require.EqualValues(t, time.Second, got.Adapted[0].BacklogNS)
	require.EqualValues(t, time.Second, h.specTo(to).BacklogNS)
	got, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", BacklogNS: 200e6})
	require.NoError(t, err)
	require.EqualValues(t, 200e6, got.Adapted[0].BacklogNS)
	require.EqualValues(t, 200e6, h.specTo(to).BacklogNS)
	s, err := api.ParseSubject(to)
	require.NoError(t, err)
	_, err = h.Set(context.Background(), root, api.SetRequest{Subject: s, Wish: api.Wish{UpBytesPerSec: ptr(uint64(1e6))}})
	require.NoError(t, err)
	require.EqualValues(t, 200e6, h.specTo(to).BacklogNS, "at another rate")

	forget := func() {
		spec := h.specTo(to)
		require.NoError(t, h.stop())
		spec.BacklogNS = 0
		fake.Put(spec)
	}
	forget()
	h = start(t, fake, h.opts)
	require.Eventually(t, func() bool { return h.specTo(to).BacklogNS == 200e6 }, soon, poll)

	// A file of the previous version has no bound.
	forget()
	text, err := os.ReadFile(h.adaptPath())
	require.NoError(t, err)
	require.Contains(t, string(text), `,"backlog_ns":200000000`)
	older := strings.ReplaceAll(strings.ReplaceAll(string(text), `,"backlog_ns":200000000`, ""), `"version":4`, `"version":3`)
	require.NoError(t, os.WriteFile(h.adaptPath(), []byte(older), 0o600))
	h = start(t, fake, h.opts)
	require.Eventually(t, func() bool { return h.specTo(to).BacklogNS == uint64(time.Second) }, soon, poll)
	var state adaptState
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(h.adaptPath())
		return err == nil && json.Unmarshal(text, &state) == nil && state.Version == adaptStateVersion
	}, soon, poll)

	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", Off: true})
	require.NoError(t, err)
	require.Zero(t, p.Count())
}

// Each host of an area has the bound; the limit that finds the hosts has none.
func TestAdaptBacklogOfAnArea(t *testing.T) {
	h, _, fake := adaptHarness(t)
	fake.SetPeers(here(t, "192.0.2.7")...)
	got, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.0/24", BacklogNS: 3e9})
	require.NoError(t, err)
	require.EqualValues(t, 3e9, got.Areas[0].BacklogNS)
	require.Eventually(t, func() bool { return h.specTo("to:192.0.2.7/udp").BacklogNS == 3e9 }, soon, poll)
	require.Zero(t, h.specTo("to:192.0.2.0/24/udp").BacklogNS)
}

// The kernel side does not report the backlog bound. A node without one in its report is therefore not set again at
// each comparison.
func TestBacklogIsNotCompared(t *testing.T) {
	a := enforce.NodeSpec{ID: 1, Kind: enforce.KindDestination, Subject: 2, BacklogNS: 1e9}
	b := a
	b.BacklogNS = 0
	require.True(t, sameSpec(a, b))
}
