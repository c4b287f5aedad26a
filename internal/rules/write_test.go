package rules

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A file that is replaced is first written beside it, not into TMPDIR; one that is there keeps its rights.
func TestFilesWrittenInPlace(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", elsewhere)
	long := time.Unix(1, 0)
	require.NoError(t, os.Chtimes(elsewhere, long, long))
	added := &Addition{Path: filepath.Join(dir, "conf.d", "a.toml"), Text: []byte("# one\n"), New: true}
	require.NoError(t, added.Write())
	require.NoError(t, os.Chmod(added.Path, 0o600))
	require.NoError(t, (&Addition{Path: added.Path, Text: []byte("# two\n")}).Write())
	text, err := os.ReadFile(added.Path)
	require.NoError(t, err)
	require.Equal(t, "# two\n", string(text))
	info, err := os.Stat(added.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(elsewhere)
	require.NoError(t, err)
	require.True(t, long.Equal(info.ModTime()), "something was in TMPDIR")
}

// A lock file that a killed command left is used again.
func TestLockLeftBehind(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, lockName)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	unlock, err := LockFolder(folder)
	require.NoError(t, err)
	_, err = tryLock(path)
	require.ErrorIs(t, err, syscall.EWOULDBLOCK)
	unlock()
	require.NoFileExists(t, path)
}

// A folder that cannot be made is named with the error.
func TestFolderNotMade(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conf.d"), nil, 0o600))
	_, err := LockFolder(filepath.Join(dir, "conf.d", "more"))
	var failed *WriteError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, filepath.Join(dir, "conf.d", "more"), failed.Folder)
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
