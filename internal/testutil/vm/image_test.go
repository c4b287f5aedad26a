package vm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// entry is an archive member as a separate reader sees it, which follows the format's description and not archive.
type entry struct {
	mode, rdevMajor, rdevMinor uint64
	data                       string
}

func readArchive(t *testing.T, raw []byte) (names []string, entries map[string]entry) {
	t.Helper()
	entries = map[string]entry{}
	align := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; ; {
		require.Equal(t, "070701", string(raw[at:at+6]))
		field := func(i int) uint64 {
			v, err := strconv.ParseUint(string(raw[at+6+8*i:at+14+8*i]), 16, 64)
			require.NoError(t, err)
			return v
		}
		size, nameLen := int(field(6)), int(field(11))
		name := string(raw[at+110 : at+110+nameLen-1])
		if name == "TRAILER!!!" {
			return names, entries
		}
		body := align(at + 110 + nameLen)
		names = append(names, name)
		entries[name] = entry{field(1), field(9), field(10), string(raw[body : body+size])}
		at = align(body + size)
	}
}

func TestArchive(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(host, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(host, "sub", "f"), []byte("hello"), 0o600))

	var raw bytes.Buffer
	a := newArchive(&raw)
	a.data("/a/b/c", 0o644, []byte("x"))
	a.data("a/b/d", 0o755, []byte("four"))
	a.symlink("sbin", "bin")
	a.char("dev/null", 0o666, 1, 3)
	a.tree("/work", host)
	require.NoError(t, a.close())

	names, entries := readArchive(t, raw.Bytes())
	require.Equal(t, []string{"a", "a/b", "a/b/c", "a/b/d", "sbin", "dev", "dev/null", "work", "work/sub", "work/sub/f"}, names,
		"parents once and before their children")
	require.Equal(t, entry{mode: 0o100644, data: "x"}, entries["a/b/c"])
	require.Equal(t, entry{mode: 0o120777, data: "bin"}, entries["sbin"])
	require.Equal(t, entry{mode: 0o020666, rdevMajor: 1, rdevMinor: 3}, entries["dev/null"])
	require.Equal(t, entry{mode: 0o100600, data: "hello"}, entries["work/sub/f"])
}

func TestArchiveKeepsTheFirstError(t *testing.T) {
	a := newArchive(failing{})
	a.data("x", 0o644, []byte("y"))
	a.file("z", "/nonexistent")
	require.ErrorIs(t, a.close(), errFull)

	a = newArchive(&bytes.Buffer{})
	a.file("z", "/nonexistent")
	require.ErrorIs(t, a.close(), os.ErrNotExist)
	a = newArchive(&bytes.Buffer{})
	a.file("z", t.TempDir())
	require.ErrorContains(t, a.close(), "not a regular file")
}

var errFull = errors.New("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }
