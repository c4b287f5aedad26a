package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

// Paths and CPU shares continue if lifting everything fails.
func TestDownThatFails(t *testing.T) {
	h, files := withEachFile(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "198.51.100.0/24"})
	require.NoError(t, err)
	before := texts(files)
	h.fake.Fail("Down", unix.EBUSY)
	require.ErrorIs(t, h.Down(t.Context(), root), unix.EBUSY)
	require.Equal(t, 1, h.cpuShares.Count())
	require.Equal(t, before, texts(files))
	h.eventually("the path is followed again", func() bool {
		list, err := h.Adapted(t.Context(), root)
		return err == nil && len(list.Adapted) == 1 && len(list.Areas) == 1 && list.Adapted[0].By == "fake" && h.fake.HeldQueues(0) == 1
	})
	h.fake.SetPeers(here(t, "198.51.100.3")...)
	h.eventually("further hosts are, too", func() bool {
		list, err := h.Adapted(t.Context(), root)
		return err == nil && len(list.Adapted) == 2
	})
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.8"})
	require.NoError(t, err)

	h.fake.Fail("Down", nil)
	require.NoError(t, h.Down(t.Context(), root))
	require.NoError(t, h.wait())
	for _, path := range append(files, h.file.Path()) {
		require.NoFileExists(t, path)
	}
}
