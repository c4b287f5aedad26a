package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// The daemon warns of data that TCP has promised to take before a limit. It does so only if the data takes long, and
// only when the limit is set or changes.
func TestPromisedIsSaid(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)
	node := h.mustSet(root, pidSubject(proc), up(1e6))
	fake.SetSockets(
		enforce.SocketStats{Nodes: []uint32{node.ID}, PromisedBytes: 3e6},
		enforce.SocketStats{Nodes: []uint32{node.ID + 1}, PromisedBytes: 9e6},
		enforce.SocketStats{Nodes: []uint32{node.ID}, PromisedBytes: 2e6},
	)
	down := func(rate uint64) api.Wish { return api.Wish{DownBytesPerSec: &rate} }

	answer, err := h.set(root, pidSubject(proc), down(10e6))
	require.NoError(t, err)
	require.Empty(t, answer.Warnings, "half a second")

	answer, err = h.set(root, pidSubject(proc), down(1e6))
	require.NoError(t, err)
	require.Len(t, answer.Warnings, 1)
	require.Contains(t, answer.Warnings[0], "promised to take 5 MB")
	require.Contains(t, answer.Warnings[0], "late by up to 5 s")

	answer, err = h.set(root, pidSubject(proc), up(2e6))
	require.NoError(t, err)
	require.Empty(t, answer.Warnings, "nothing that is received has changed")
}
