package desired

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/statefile"
)

func user(id uint32, rate uint64) *Record {
	return &Record{
		ID: id, Kind: enforce.KindUser, Key: uint64(id), UID: id,
		Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(id)}, Admin: limit.Limit{Up: rate},
	}
}

// newFile returns a file in a folder of its own.
func newFile(t *testing.T, o statefile.Options, c Content) *File {
	t.Helper()
	o.Dir, o.Log = t.TempDir(), slog.New(slog.DiscardHandler)
	return NewFile(FileOptions{Folder: statefile.New(o), BootID: "boot", Content: func() Content { return c }, Log: o.Log})
}

// stateText returns a file of these records, as this daemon writes it.
func stateText(t *testing.T, lasting bool, records ...Change) []byte {
	t.Helper()
	f := newFile(t, statefile.Options{}, Content{NextID: 9, Records: slices.Values([]Record{})})
	require.NoError(t, f.Save())
	for _, c := range records {
		require.NoError(t, f.Append(lasting, c))
	}
	text, err := os.ReadFile(f.Path())
	require.NoError(t, err)
	return text
}

// formerText returns such a file as netnice wrote it before there were checksums.
func formerText(t *testing.T, version, nodes int, records ...Change) []byte {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	require.NoError(t, enc.Encode(map[string]any{"version": version, "boot_id": "boot", "next_id": 9, "nodes": nodes}))
	for _, r := range records {
		require.NoError(t, enc.Encode(r))
	}
	return text.Bytes()
}

// undamaged parses a file without damage.
func undamaged(t *testing.T, text []byte) *State {
	t.Helper()
	s, err := Parse(text, "boot")
	require.NoError(t, err)
	require.NoError(t, s.Damage)
	return s
}

func rates(s *State) map[uint32]uint64 {
	list := map[uint32]uint64{}
	for _, n := range s.Nodes {
		list[n.ID] = n.Admin.Up
	}
	return list
}

var fiveChanges = []Change{{Node: user(1, 5)}, {Node: user(2, 6)}, {Node: user(1, 7)}, {Gone: 2}, {Gone: 3}}

// afterChanges holds the rates by node after each of fiveChanges.
var afterChanges = []map[uint32]uint64{{}, {1: 5}, {1: 5, 2: 6}, {1: 7, 2: 6}, {1: 7}, {1: 7}}

func TestReadState(t *testing.T) {
	text := stateText(t, true, fiveChanges...)
	require.Equal(t, &State{Version: Version, BootID: "boot", NextID: 9, Nodes: []Record{*user(1, 7)}}, undamaged(t, text))
	first := bytes.IndexByte(text, '\n') + 1

	// A file that is cut anywhere, also between two records and in whatever boot, is noticed. Its state is the one
	// before the cut.
	for _, boot := range []string{"boot", "another"} {
		for cut := range text {
			s, err := Parse(text[:cut], boot)
			require.NoError(t, err)
			require.Error(t, s.Damage, "cut at %d", cut)
			if cut < first {
				require.Empty(t, s.Nodes, "%d: the heading is written whole", cut)
				continue
			}
			require.Equal(t, afterChanges[bytes.Count(text[:cut], []byte("\n"))-1], rates(s), "cut at %d", cut)
		}
	}
	undamaged(t, append(bytes.Clone(text), 0, 0, 0))                      // as a file system may leave it after a power failure
	undamaged(t, append(bytes.Clone(text), "1234abcd {\"next_id\":1"...)) // an unfinished write of a change

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
		"first change": {[][]byte{lines[0], lines[2], lines[3]}, 0},
	} {
		s, err := Parse(bytes.Join(c.lines, nil), "boot")
		require.NoError(t, err, name)
		require.ErrorContains(t, s.Damage, fmt.Sprintf("line %d", c.left+2), name)
		require.Equal(t, afterChanges[c.left], rates(s), name)
	}
}

// Records that the daemon did not wait for the disk to write may be missing after a power cut, and in no other case.
func TestReadStateAfterPowerCut(t *testing.T) {
	text := stateText(t, false, fiveChanges...)
	short := text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
	s, err := Parse(short, "another")
	require.NoError(t, err)
	require.NoError(t, s.Damage)
	require.Equal(t, afterChanges[4], rates(s))
	s, err = Parse(short, "boot")
	require.NoError(t, err)
	require.ErrorContains(t, s.Damage, "it ends after 4 of at least 5 records")
}

// Files of former releases are read without checksums.
func TestReadFormerState(t *testing.T) {
	for version := 2; version < summedVersion; version++ {
		text := formerText(t, version, 2, fiveChanges...)
		require.Equal(t, &State{Version: version, BootID: "boot", NextID: 9, Nodes: []Record{*user(1, 7)}}, undamaged(t, text))
		lines := bytes.SplitAfter(text, []byte("\n"))
		require.Equal(t, afterChanges[2], rates(undamaged(t, bytes.Join(lines[:3], nil))), "what was added later is not counted")
		s, err := Parse(bytes.Join(lines[:2], nil), "boot")
		require.NoError(t, err)
		require.ErrorContains(t, s.Damage, "it ends after 1 of at least 2 records")
		for name, spoil := range map[string]string{"unknown field": `{"surprise":1}`, "two values": `{"gone":1} {"gone":2}`, "no value": ""} {
			s, err := Parse(slices.Concat(lines[0], []byte(spoil+"\n"), lines[1]), "boot")
			require.NoError(t, err)
			require.ErrorContains(t, s.Damage, "line 2", name)
			require.Empty(t, s.Nodes)
		}
	}
	s, err := Parse([]byte(`{"version":1,"boot_id":"x","next_id":4,"nodes":[]} x`), "boot")
	require.NoError(t, err)
	require.Error(t, s.Damage)
	s = undamaged(t, []byte("{\n\t\"version\": 1, \"boot_id\": \"x\", \"next_id\": 4, \"nodes\": []\n}\n"))
	require.EqualValues(t, 4, s.NextID)
	_, err = Parse([]byte(`{"version":99,"surprise":1}`), "boot")
	require.ErrorContains(t, err, "newer netnice")
	s, err = Parse([]byte(`{"version":9,"boot_id":"boot","next_id":9,"nodes":0}`+"\n"+`{"node":{"id":0}}`+"\n"), "boot")
	require.NoError(t, err)
	require.ErrorContains(t, s.Damage, "out of range")
	require.Empty(t, s.Nodes, "none of it is certain")
}

// A file that cannot be written is marked as behind, and is written whole as soon as that works.
func TestFileThatCannotBeWritten(t *testing.T) {
	var fault error
	records := []Record{*user(1, 5)}
	f := newFile(t, statefile.Options{Fault: func(_ string, takesNoRoom bool) error {
		if takesNoRoom {
			return nil
		}
		return fault
	}}, Content{})
	f.content = func() Content { return Content{NextID: 9, Count: len(records), Records: slices.Values(records)} }
	require.NoError(t, f.Save())
	read := func() *State {
		s, err := Load(f.folder.Dir(), "boot")
		require.NoError(t, err)
		return s
	}
	fault = unix.ENOSPC
	records = append(records, *user(2, 6))
	require.ErrorIs(t, f.Append(true, Change{Node: &records[1]}), unix.ENOSPC)
	require.ErrorContains(t, read().Damage, "what was wanted last could not be written")
	require.Error(t, Check(f.folder.Dir(), "boot"))
	fault = nil
	f.SaveIfDue(true)
	require.Error(t, read().Damage, "a new attempt is not due yet")
	f.folder.TryNow()
	f.SaveIfDue(false)
	require.NoError(t, read().Damage)
	require.Equal(t, records, read().Nodes)
	require.NoError(t, Check(f.folder.Dir(), "boot"))

	// SaveIfDue notices a file that somebody has changed only when it looks.
	require.NoError(t, os.Remove(f.Path()))
	f.SaveIfDue(false)
	require.NoFileExists(t, f.Path())
	f.SaveIfDue(true)
	require.Equal(t, records, read().Nodes)
}

// The file does not grow without end.
func TestFileIsWrittenAnew(t *testing.T) {
	f := newFile(t, statefile.Options{}, Content{NextID: 9, Count: 1, Records: slices.Values([]Record{*user(1, 7)})})
	require.NoError(t, f.Save())
	most := 0
	for i := range 3 * SpareLines {
		require.NoError(t, f.Append(false, Change{Node: user(1, uint64(i))}))
		text, err := os.ReadFile(f.Path())
		require.NoError(t, err)
		most = max(most, bytes.Count(text, []byte("\n")))
	}
	require.Equal(t, SpareLines+3, most)
}
