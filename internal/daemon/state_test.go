package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

func user(id uint32, rate uint64) *savedNode {
	return &savedNode{
		ID: id, Kind: enforce.KindUser, Key: uint64(id), UID: id,
		Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(id)}, Admin: wish{Up: rate},
	}
}

// stateText is a file of these records.
func stateText(t *testing.T, records ...record) []byte {
	t.Helper()
	d := &Daemon{opts: Options{StateDir: t.TempDir()}, boot: "boot", nextID: 9, nodes: map[uint32]*node{}}
	require.NoError(t, d.save())
	for _, r := range records {
		require.NoError(t, d.saveChange(true, r))
	}
	text, err := os.ReadFile(d.statePath())
	require.NoError(t, err)
	return text
}

func TestReadState(t *testing.T) {
	text := stateText(t, record{Node: user(1, 5)}, record{Node: user(2, 6)}, record{Node: user(1, 7)}, record{Gone: 2}, record{Gone: 3})
	s, err := readState(text)
	require.NoError(t, err)
	require.Equal(t, &state{Version: stateVersion, BootID: "boot", NextID: 9, Nodes: []savedNode{*user(1, 7)}}, s)

	// Cut anywhere, as by a power failure, it says what held before.
	first := bytes.IndexByte(text, '\n') + 1
	for cut := range text {
		s, err := readState(text[:cut])
		if cut < first {
			require.Error(t, err, "%d: the heading is written whole", cut)
			continue
		}
		require.NoError(t, err, "cut at %d", cut)
		lines := bytes.Count(text[:cut], []byte("\n"))
		rates := map[uint32]uint64{}
		for _, n := range s.Nodes {
			rates[n.ID] = n.Admin.Up
		}
		require.Equal(t, []map[uint32]uint64{{}, {1: 5}, {1: 5, 2: 6}, {1: 7, 2: 6}, {1: 7}}[min(lines-1, 4)], rates)
	}
	whole := "{\"version\":2,\"boot_id\":\"boot\",\"next_id\":9,\"nodes\":2}\n" + string(text[first:])
	_, err = readState([]byte(whole))
	require.NoError(t, err)
	_, err = readState([]byte(whole[:strings.LastIndex(strings.TrimSuffix(whole, "\n"), "next_id")]))
	require.NoError(t, err, "two records and a part of one that was added")
	_, err = readState([]byte(whole[:strings.Index(whole, "next_id\":9,\"node\":{")+20]))
	require.ErrorContains(t, err, "ends in line 2", "one of the two is missing")
	_, err = readState(append(text, 0, 0, 0))
	require.NoError(t, err, "a file system may leave zeros after a power failure")

	for name, spoil := range map[string]string{"unknown field": `{"surprise":1}`, "two values": `{"gone":1} {"gone":2}`, "no value": ""} {
		_, err := readState([]byte(string(text[:first]) + spoil + "\n" + string(text[first:])))
		require.ErrorContains(t, err, "line 2", name)
	}
	_, err = readState([]byte(`{"version":1,"boot_id":"x","next_id":4,"nodes":[]} x`))
	require.Error(t, err)
	s, err = readState([]byte("{\n\t\"version\": 1, \"boot_id\": \"x\", \"next_id\": 4, \"nodes\": []\n}\n"))
	require.NoError(t, err, "as netnice wrote it before")
	require.EqualValues(t, 4, s.NextID)
}

// TestChangesAreAdded sees that a change does not write the file anew, and that
// it does not grow without end.
func TestChangesAreAdded(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	path := filepath.Join(h.opts.StateDir, stateName)
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
	for i := range 2 * (spare + 4) {
		h.mustSet(root, "user:4242", up(uint64(2e6+i)))
	}
	require.Less(t, strings.Count(string(must(os.ReadFile(path))), "\n"), spare+10)

	// Who edits or removes it meanwhile loses nothing of ours.
	for i, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		func() error { return os.Truncate(path, 10) },
	} {
		require.NoError(t, spoil())
		h.mustSet(root, "user:4243", up(uint64(1e6+i)))
		s, err := loadState(h.opts.StateDir)
		require.NoError(t, err)
		require.Len(t, s.Nodes, 3)
	}
	_, err := h.remove(root, "user:4243")
	require.NoError(t, err)
	require.NoError(t, h.stop())
	s, err := loadState(h.opts.StateDir)
	require.NoError(t, err)
	require.Len(t, s.Nodes, 2)
}

// TestKilledBetweenChanges takes up what the file says after kill -9.
func TestKilledBetweenChanges(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	proc := sleeper(t)
	h.mustSet(root, pidSubject(proc), up(1e6))
	h.mustSet(root, pidSubject(proc), up(3e6))
	h.mustSet(root, "user:4242", up(2e6))
	text := must(os.ReadFile(h.statePath()))
	require.NoError(t, h.stop())
	require.NoError(t, os.WriteFile(h.statePath(), append(text, `{"next_id":7,"gone":`...), 0o600))
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
