package prefixlists

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/statefile"
	"github.com/netnice/netnice/internal/testutil"
)

// kept has lists in a folder that may refuse to be written.
type kept struct {
	*Lists
	fault   error
	changes int
	failed  []error
}

func newLists(t *testing.T) *kept {
	t.Helper()
	k := &kept{}
	k.open(t, t.TempDir())
	return k
}

// open replaces the lists by those of the next daemon.
func (k *kept) open(t *testing.T, dir string) {
	t.Helper()
	k.Lists = New(Options{
		Files: statefile.New(statefile.Options{
			Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Fault: func(string, bool) error { return k.fault },
		}),
		Changed: func() { k.changes++ }, Complain: func(err error) { k.failed = append(k.failed, err) },
	})
}

// take replaces a list in a transaction, which is undone unless it ends.
func (k *kept) take(t *testing.T, key Key, ends bool, prefixes ...string) error {
	t.Helper()
	var tx request.Transaction
	var list []netip.Prefix
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	err := k.Take(&tx, key, list)
	if ends && err == nil {
		tx.Finish(func() {})
		return nil
	}
	require.Empty(t, tx.Undo())
	return err
}

var ofRoot, ofBob = Key{Path: "/lan.txt"}, Key{RuleSet: 4242, Path: "/lan.txt"}

func (k *kept) texts(key Key) (list []string) {
	for _, p := range k.Of(key) {
		list = append(list, p.String())
	}
	return list
}

func TestListIsReplaced(t *testing.T) {
	k := newLists(t)
	testutil.RequireCode(t, api.CodeBadRequest, k.take(t, ofRoot, true))
	require.NoError(t, k.take(t, ofRoot, false, "10.0.0.0/8"))
	require.Nil(t, k.Of(ofRoot))
	testutil.RequireCode(t, api.CodeBadRequest, k.take(t, ofRoot, true))

	require.NoError(t, k.take(t, ofRoot, true, "10.0.0.0/8"))
	require.NoError(t, k.take(t, ofBob, true, "192.0.2.0/24", "2001:db8::/32"))
	require.NoError(t, k.take(t, ofRoot, true), "a list is there already")
	require.NoError(t, k.take(t, ofRoot, false, "198.51.100.0/24"))
	require.Equal(t, []string{"10.0.0.0/8"}, k.texts(ofRoot))
	require.Equal(t, []string{"192.0.2.0/24", "2001:db8::/32"}, k.texts(ofBob))
	require.NotEqual(t, k.Path(ofRoot), k.Path(ofBob))
	require.Equal(t, 6, k.changes, "of each list, and of each undo")
	text, err := os.ReadFile(k.Path(ofBob))
	require.NoError(t, err)
	require.Equal(t, "192.0.2.0/24\n2001:db8::/32\n", string(text))
}

func TestListsOutliveTheDaemon(t *testing.T) {
	testutil.RequireRoot(t) // only files of root's are trusted
	k := newLists(t)
	require.NoError(t, k.take(t, ofRoot, true, "10.0.0.0/8"))
	require.NoError(t, k.take(t, ofBob, true, "192.0.2.0/24"))
	require.NoError(t, os.WriteFile(k.Path(ofBob), []byte("192.0.2.0/24\nno prefix\n"), 0o600))
	k.open(t, k.opts.Files.Dir())
	require.NoError(t, k.Load(ofRoot))
	err := k.Load(ofBob)
	require.ErrorContains(t, err, "the prefixes of /lan.txt are not known any more")
	require.ErrorContains(t, err, ":2: ")
	require.NoError(t, k.Load(ofBob), "it was told")
	require.Equal(t, []string{"10.0.0.0/8"}, k.texts(ofRoot))
	require.Empty(t, k.texts(ofBob))
	require.NoError(t, k.take(t, ofBob, true), "a limit with an empty list may change its rate")
}

func TestListsAreWrittenAgain(t *testing.T) {
	k := newLists(t)
	k.fault = errors.New("no room")
	require.NoError(t, k.take(t, ofRoot, true, "10.0.0.0/8"))
	require.ErrorIs(t, k.opts.Files.Unwritten(k.Path(ofRoot)), k.fault)
	require.NoFileExists(t, k.Path(ofRoot))
	k.fault = nil
	k.opts.Files.TryNow()
	k.WriteAgain()
	require.NoError(t, k.opts.Files.Unwritten(k.Path(ofRoot)))
	require.NoError(t, os.Remove(k.Path(ofRoot)))
	k.WriteAgain()
	require.FileExists(t, k.Path(ofRoot))
}

func TestUnusedListsGo(t *testing.T) {
	k := newLists(t)
	require.NoError(t, k.take(t, ofRoot, true, "10.0.0.0/8"))
	require.NoError(t, k.take(t, ofBob, true, "192.0.2.0/24"))
	k.RemoveUnused(map[Key]bool{ofBob: true})
	require.NoFileExists(t, k.Path(ofRoot))
	require.FileExists(t, k.Path(ofBob))
	k.fault = errors.New("a read-only disk")
	k.RemoveUnused(nil)
	require.Equal(t, []error{k.fault}, k.failed)
	k.fault = nil
	for key := range k.All() {
		t.Errorf("%v is still there", key)
	}
	require.NoError(t, os.Remove(k.Path(ofBob)))
	k.RemoveUnused(nil)
	require.NoDirExists(t, k.opts.Files.Path(Folder))
}
