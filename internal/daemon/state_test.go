package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/desired/desiredtest"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// TestChangesAreAdded checks that a change does not write the whole file again, and that the file does not grow without
// end.
func TestChangesAreAdded(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	path := filepath.Join(h.opts.StateDir, desired.FileName)
	stat := func() os.FileInfo {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info
	}
	h.mustSet(root, "host", up(1e6))
	before := stat()
	h.mustSet(root, "user:4242", up(1e6))
	require.True(t, os.SameFile(before, stat()))
	require.Greater(t, stat().Size(), before.Size())
	for i := range 2 * (desired.SpareLines + 4) {
		h.mustSet(root, "user:4242", up(uint64(2e6+i)))
	}
	require.Less(t, strings.Count(string(must(os.ReadFile(path))), "\n"), desired.SpareLines+10)

	// An edit or a removal of the file by somebody else loses no limit.
	for i, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		func() error { return os.Truncate(path, 10) },
	} {
		require.NoError(t, spoil())
		h.mustSet(root, "user:4243", up(uint64(1e6+i)))
		s, err := desired.Load(h.opts.StateDir, h.boot)
		require.NoError(t, err)
		require.NoError(t, s.Damage)
		require.Len(t, s.Nodes, 3)
	}
	_, err := h.remove(root, "user:4243")
	require.NoError(t, err)
	require.NoError(t, h.stop())
	s, err := desired.Load(h.opts.StateDir, h.boot)
	require.NoError(t, err)
	require.Len(t, s.Nodes, 2)
}

// TestKilledBetweenChanges checks that a daemon takes over the state in the file after kill -9.
func TestKilledBetweenChanges(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	proc := sleeper(t)
	h.mustSet(root, pidSubject(proc), up(1e6))
	h.mustSet(root, pidSubject(proc), up(3e6))
	h.mustSet(root, "user:4242", up(2e6))
	text := must(os.ReadFile(h.file.Path()))
	require.NoError(t, h.stop())
	require.NoError(t, os.WriteFile(h.file.Path(), append(text, `{"next_id":7,"gone":`...), 0o600))
	h = start(t, fake, opts)
	list, err := h.Nodes(context.Background(), root)
	require.NoError(t, err)
	require.Len(t, list.Nodes, 2)
	nodes, err := h.nodesFor(pidSubject(proc))
	require.NoError(t, err)
	require.EqualValues(t, 3e6, nodes[0].Limits[0].BytesPerSec)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A node is written as it was read.
func TestNodeOfRecord(t *testing.T) {
	s, err := desired.Parse([]byte(desiredtest.Whole), "boot")
	require.NoError(t, err)
	require.Len(t, s.Nodes, 10)
	for _, r := range s.Nodes {
		n := nodeOf(r)
		if n.marker {
			n.holds = 1 // adoptDestinations counts the limits under it
		}
		if n.scopeID != 0 {
			n.to.scope = &node{id: n.scopeID} // adoptDestinations finds it
		}
		require.Equal(t, r, n.wanted())
	}
}
