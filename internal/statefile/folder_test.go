package statefile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

// counter is the content of a file in these tests.
type counter struct {
	Version int `json:"version"`
	Count   int `json:"count"`
}

func (c *counter) Check() error {
	if c.Count < 0 {
		return errors.New("a negative count")
	}
	return nil
}

const name = "counter.json"

// newFolder returns a folder whose files cannot be written while *fault is not nil.
func newFolder(t *testing.T, fault *error) *Folder {
	t.Helper()
	return New(Options{
		Dir: t.TempDir(), Names: []string{name}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Fault: func(string, bool) error { return *fault },
	})
}

func TestObject(t *testing.T) {
	var fault error
	f := newFolder(t, &fault)
	path := f.Path(name)
	var back counter
	found, err := f.LoadObject(path, 1, &back)
	require.NoError(t, err)
	require.False(t, found)

	f.SaveObject(path, false, counter{Version: 1, Count: 7})
	found, err = f.LoadObject(path, 1, &back)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, 7, back.Count)
	require.False(t, f.IsBehind(path))

	// Another program removes the file, or changes it.
	for _, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("another text"), 0o600) },
	} {
		require.NoError(t, spoil())
		require.True(t, f.IsBehind(path))
		f.WriteIfBehind(path, func() { f.SaveObject(path, false, counter{Version: 1, Count: 8}) })
		require.False(t, f.IsBehind(path))
	}

	f.SaveObject(path, true, nil)
	require.NoFileExists(t, path)
	require.False(t, f.IsBehind(path))
	require.Zero(t, f.Failures())
}

func TestObjectThatCannotBeWritten(t *testing.T) {
	fault := error(unix.ENOSPC)
	f := newFolder(t, &fault)
	path := f.Path(name)
	f.SaveObject(path, false, counter{Version: 1})
	require.ErrorIs(t, f.Unwritten(path), unix.ENOSPC)
	require.False(t, f.IsBehind(path), "a new attempt is not due yet")
	require.False(t, f.IsWorthTrying(path))
	require.ErrorIs(t, f.AllUnwritten()[path].Err, unix.ENOSPC)
	require.EqualValues(t, 1, f.Failures())
	f.TryNow()
	require.True(t, f.IsBehind(path))
	fault = nil
	f.WriteIfBehind(path, func() { f.SaveObject(path, false, counter{Version: 1}) })
	require.NoError(t, f.Unwritten(path))
	require.Empty(t, f.AllUnwritten())
	require.FileExists(t, path)
}

// A damaged file is kept, also if the first attempt to keep it fails. It is kept once.
func TestDamagedObject(t *testing.T) {
	for text, cause := range map[string]string{
		`{"version":1,"count":-1}`: "a negative count", `{"version":1,"surprise":1}`: "surprise", `{"version":0}`: "version 0 is unknown", `{`: "unexpected end", `{"version":1}{}`: "more than one value|after top-level value",
	} {
		fault := error(unix.ENOSPC)
		f := newFolder(t, &fault)
		path := f.Path(name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		var back counter
		found, err := f.LoadObject(path, 1, &back)
		require.NoError(t, err)
		require.False(t, found)
		damage, ok := f.Damage(path)
		require.True(t, ok)
		require.Regexp(t, cause, damage.Cause.Error())
		require.Empty(t, damage.Aside)
		require.FileExists(t, path, "the only version stays until it is kept")

		fault = nil
		for range 2 {
			f.SaveObject(path, false, counter{Version: 1})
		}
		damage, _ = f.Damage(path)
		require.Equal(t, []string{damage.Aside}, Damaged(f.Dir(), []string{name}))
		kept, err := os.ReadFile(damage.Aside)
		require.NoError(t, err)
		require.Equal(t, text, string(kept))
	}
}

func TestObjectOfNewerRelease(t *testing.T) {
	var fault error
	f := newFolder(t, &fault)
	require.NoError(t, os.WriteFile(f.Path(name), []byte(`{"version":2}`), 0o600))
	_, err := f.LoadObject(f.Path(name), 1, &counter{})
	var known *api.Error
	require.ErrorAs(t, err, &known)
	require.Contains(t, known.Message, "its version is 2, this netnice knows 1")
	require.Contains(t, known.Hint, "sudo mv ")
	require.FileExists(t, f.Path(name))
}

// A file in a folder of its own has that folder made; the state folder itself is not made.
func TestRewriteMakesItsFolder(t *testing.T) {
	var fault error
	f := newFolder(t, &fault)
	path := filepath.Join(f.Dir(), "lists", "1")
	for range 2 {
		require.NoError(t, f.Rewrite(path, []byte("text")))
	}
	require.NoError(t, f.Drop(path))
	require.NoFileExists(t, path)
	require.NoError(t, f.Drop(path), "nothing is there")
	require.NoError(t, os.RemoveAll(f.Dir()))
	require.ErrorIs(t, f.Rewrite(f.Path(name), nil), fs.ErrNotExist)
}

func TestReadTrusted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	_, err := ReadTrusted(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	text, err := ReadTrusted(path)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.NoError(t, TrustFolder(dir, info))

	refused := func(path, hint string) {
		t.Helper()
		_, err := ReadTrusted(path)
		var known *api.Error
		require.ErrorAs(t, err, &known)
		require.Contains(t, known.Hint, hint)
		require.Equal(t, err, Unusable(path, err), "it has a remedy already")
	}
	require.NoError(t, os.Chmod(path, 0o620))
	refused(path, "sudo chmod 600 ")
	require.NoError(t, os.Symlink(path, path+".link"))
	refused(path+".link", "readlink -f ")
	require.NoError(t, unix.Mkfifo(path+".fifo", 0o600))
	_, err = ReadTrusted(path + ".fifo")
	require.ErrorContains(t, err, "it is no file")
}
