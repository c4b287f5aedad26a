package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/limit"
)

func user(id uint32, rate uint64) *savedNode {
	return &savedNode{
		ID: id, Kind: enforce.KindUser, Key: uint64(id), UID: id,
		Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(id)}, Admin: limit.Limit{Up: rate},
	}
}

// stateText returns a file of these records, as this daemon writes it.
func stateText(t *testing.T, lasting bool, records ...record) []byte {
	t.Helper()
	d := &Daemon{opts: Options{StateDir: t.TempDir()}, boot: "boot", nextID: 9, nodes: map[uint32]*node{}}
	require.NoError(t, d.save())
	for _, r := range records {
		require.NoError(t, d.saveChange(lasting, r))
	}
	text, err := os.ReadFile(d.statePath())
	require.NoError(t, err)
	return text
}

// formerText returns such a file as netnice wrote it before there were checksums.
func formerText(t *testing.T, version, nodes int, records ...record) []byte {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	require.NoError(t, enc.Encode(map[string]any{"version": version, "boot_id": "boot", "next_id": 9, "nodes": nodes}))
	for _, r := range records {
		require.NoError(t, enc.Encode(r))
	}
	return text.Bytes()
}

// whole parses a file without damage.
func whole(t *testing.T, text []byte) *state {
	t.Helper()
	s, err := readState(text, "boot")
	require.NoError(t, err)
	require.NoError(t, s.damage)
	return s
}

func rates(s *state) map[uint32]uint64 {
	list := map[uint32]uint64{}
	for _, n := range s.Nodes {
		list[n.ID] = n.Admin.Up
	}
	return list
}

var fiveChanges = []record{{Node: user(1, 5)}, {Node: user(2, 6)}, {Node: user(1, 7)}, {Gone: 2}, {Gone: 3}}

// afterChanges holds the rates by node after each of fiveChanges.
var afterChanges = []map[uint32]uint64{{}, {1: 5}, {1: 5, 2: 6}, {1: 7, 2: 6}, {1: 7}, {1: 7}}

func TestReadState(t *testing.T) {
	text := stateText(t, true, fiveChanges...)
	require.Equal(t, &state{Version: stateVersion, BootID: "boot", NextID: 9, Nodes: []savedNode{*user(1, 7)}}, whole(t, text))
	first := bytes.IndexByte(text, '\n') + 1

	// A file that is cut anywhere, also between two records and in whatever boot, is noticed. Its state is the one
	// before the cut.
	for _, boot := range []string{"boot", "another"} {
		for cut := range text {
			s, err := readState(text[:cut], boot)
			require.NoError(t, err)
			require.Error(t, s.damage, "cut at %d", cut)
			if cut < first {
				require.Empty(t, s.Nodes, "%d: the heading is written whole", cut)
				continue
			}
			require.Equal(t, afterChanges[bytes.Count(text[:cut], []byte("\n"))-1], rates(s), "cut at %d", cut)
		}
	}
	whole(t, append(bytes.Clone(text), 0, 0, 0))                      // as a file system may leave it after a power failure
	whole(t, append(bytes.Clone(text), "1234abcd {\"next_id\":1"...)) // an unfinished write of a change

	// The reader stops at a line that is changed, missing, in another place or without checksum.
	lines := bytes.SplitAfter(text, []byte("\n"))
	for name, c := range map[string]struct {
		lines [][]byte
		left  int
	}{
		"changed":      {[][]byte{lines[0], lines[1], bytes.Replace(lines[2], []byte(`:6`), []byte(`:9`), 1), lines[3]}, 1},
		"missing":      {[][]byte{lines[0], lines[1], lines[3], lines[4], lines[5]}, 1},
		"twice":        {[][]byte{lines[0], lines[1], lines[1], lines[2]}, 1},
		"exchanged":    {[][]byte{lines[0], lines[2], lines[1]}, 0},
		"no checksum":  {[][]byte{lines[0], lines[1], lines[2], lines[3][sumDigits+1:]}, 2},
		"no hex":       {[][]byte{lines[0], append([]byte("zzzz"), lines[1][4:]...)}, 0},
		"first record": {[][]byte{lines[0], lines[2], lines[3]}, 0},
	} {
		s, err := readState(bytes.Join(c.lines, nil), "boot")
		require.NoError(t, err, name)
		require.ErrorContains(t, s.damage, fmt.Sprintf("line %d", c.left+2), name)
		require.Equal(t, afterChanges[c.left], rates(s), name)
	}
}

// Records that the daemon did not wait for the disk to write may be missing after a power cut, and in no other case.
func TestReadStateAfterPowerCut(t *testing.T) {
	text := stateText(t, false, fiveChanges...)
	short := text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
	s, err := readState(short, "another")
	require.NoError(t, err)
	require.NoError(t, s.damage)
	require.Equal(t, afterChanges[4], rates(s))
	s, err = readState(short, "boot")
	require.NoError(t, err)
	require.ErrorContains(t, s.damage, "it ends after 4 of at least 5 records")
}

// Files of former releases are read without checksums.
func TestReadFormerState(t *testing.T) {
	for version := 2; version < summedVersion; version++ {
		text := formerText(t, version, 2, fiveChanges...)
		require.Equal(t, &state{Version: version, BootID: "boot", NextID: 9, Nodes: []savedNode{*user(1, 7)}}, whole(t, text))
		lines := bytes.SplitAfter(text, []byte("\n"))
		require.Equal(t, afterChanges[2], rates(whole(t, bytes.Join(lines[:3], nil))), "what was added later is not counted")
		s, err := readState(bytes.Join(lines[:2], nil), "boot")
		require.NoError(t, err)
		require.ErrorContains(t, s.damage, "it ends after 1 of at least 2 records")
		for name, spoil := range map[string]string{"unknown field": `{"surprise":1}`, "two values": `{"gone":1} {"gone":2}`, "no value": ""} {
			s, err := readState(slices.Concat(lines[0], []byte(spoil+"\n"), lines[1]), "boot")
			require.NoError(t, err)
			require.ErrorContains(t, s.damage, "line 2", name)
			require.Empty(t, s.Nodes)
		}
	}
	s, err := readState([]byte(`{"version":1,"boot_id":"x","next_id":4,"nodes":[]} x`), "boot")
	require.NoError(t, err)
	require.Error(t, s.damage)
	s = whole(t, []byte("{\n\t\"version\": 1, \"boot_id\": \"x\", \"next_id\": 4, \"nodes\": []\n}\n"))
	require.EqualValues(t, 4, s.NextID)
	_, err = readState([]byte(`{"version":99,"surprise":1}`), "boot")
	require.ErrorContains(t, err, "newer netnice")
	s, err = readState([]byte(`{"version":9,"boot_id":"boot","next_id":9,"nodes":0}`+"\n"+`{"node":{"id":0}}`+"\n"), "boot")
	require.NoError(t, err)
	require.ErrorContains(t, s.damage, "out of range")
	require.Empty(t, s.Nodes, "none of it is certain")
}

// TestChangesAreAdded checks that a change does not write the whole file again, and that the file does not grow without
// end.
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

	// An edit or a removal of the file by somebody else loses no limit.
	for i, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		func() error { return os.Truncate(path, 10) },
	} {
		require.NoError(t, spoil())
		h.mustSet(root, "user:4243", up(uint64(1e6+i)))
		s, err := loadState(h.opts.StateDir, h.boot)
		require.NoError(t, err)
		require.NoError(t, s.damage)
		require.Len(t, s.Nodes, 3)
	}
	_, err := h.remove(root, "user:4243")
	require.NoError(t, err)
	require.NoError(t, h.stop())
	s, err := loadState(h.opts.StateDir, h.boot)
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
