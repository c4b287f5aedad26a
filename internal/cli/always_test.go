package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/rules"
)

// A file that is replaced is first written beside it, not into TMPDIR.
func TestFilesWrittenInPlace(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", elsewhere)
	long := time.Unix(1, 0)
	require.NoError(t, os.Chtimes(elsewhere, long, long))
	require.NoError(t, writeTrain(filepath.Join(dir, "train.svg"), probe.Train{}, "a train"))
	info, err := os.Stat(elsewhere)
	require.NoError(t, err)
	require.True(t, long.Equal(info.ModTime()), "something was in TMPDIR")
}

// ordinaryUser is a System whose caller is no administrator.
type ordinaryUser struct{ System }

func (ordinaryUser) EUID() int { return 54321 }

// Commands that add rules to one file at the same time keep each other's rules, and leave no lock file.
func TestRulesAddedAtOnce(t *testing.T) {
	const commands = 16
	home := t.TempDir()
	t.Setenv("HOME", home)
	app, _ := testApp()
	app.System = ordinaryUser{}
	file := filepath.Join(home, rules.OfUser)
	folder := filepath.Dir(file)
	var adding sync.WaitGroup
	var failed [commands]error
	for i := range commands {
		adding.Go(func() {
			name := fmt.Sprintf("program%d", i)
			_, failed[i] = app.writeRule(rules.Draft{Name: name, Program: name, Up: "1MB/s"}, folder)
		})
	}
	adding.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
	list, err := rules.LoadUser(home, uint32(os.Geteuid()))
	require.NoError(t, err)
	require.Len(t, list, commands)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the lock file is gone")
}

// A rule that cannot be written says where to look, and with which right.
func TestRuleNotWritten(t *testing.T) {
	dir := t.TempDir()
	_, hint, code := explain(notWritten(&rules.WriteError{Folder: filepath.Join(dir, "a", "b"), Action: "write the rule", Err: &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}}))
	require.Equal(t, exitDenied, code)
	require.Equal(t, "ls -la "+dir, hint)
	message, hint, code := explain(notWritten(&rules.WriteError{Folder: dir, Action: "write the rule", Err: errors.Join(syscall.EROFS)}))
	require.Equal(t, exitFailed, code)
	require.Contains(t, message, "read-only file system; none was added")
	require.Contains(t, hint, "findmnt -T "+dir)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "conf.d"), nil, 0o600))
	_, hint, code = explain(notWritten((&rules.Addition{Path: filepath.Join(dir, "conf.d", "a.toml")}).Write()))
	require.Equal(t, exitFailed, code)
	require.Contains(t, hint, "df -h "+dir)
}
