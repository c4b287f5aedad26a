package rules

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const one = "[[rule]]\nprogram = 'x'\nup = '1MB/s'\n"

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	require.NoError(t, os.Chmod(path, 0o644))
}

func me() uint32 { return uint32(os.Getuid()) }

func TestLoadSystem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "netnice")
	list, err := LoadSystem(dir, me(), users)
	require.NoError(t, err)
	require.Empty(t, list)
	none := SystemStamp(dir)

	main := filepath.Join(dir, "netnice.toml")
	write(t, filepath.Join(dir, "conf.d/20-b.toml"), one)
	write(t, filepath.Join(dir, "conf.d/10-a.toml"), one)
	write(t, filepath.Join(dir, "conf.d/30-c.toml.bak"), "no rules")
	write(t, main, one)
	list, err = LoadSystem(dir, me(), users)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, main, list[0].File)
	require.Equal(t, "10-a.toml", filepath.Base(list[1].File))
	before := SystemStamp(dir)
	require.NotEqual(t, none, before)
	require.Equal(t, before, SystemStamp(dir))

	// With a bad file among good ones no rule counts, and the error names the file.
	write(t, filepath.Join(dir, "conf.d/20-b.toml"), "[[rule]]\nup = 3")
	require.NotEqual(t, before, SystemStamp(dir))
	list, err = LoadSystem(dir, me(), users)
	require.ErrorContains(t, err, "conf.d/20-b.toml:2:1: up is a number")
	require.Empty(t, list)
	write(t, filepath.Join(dir, "conf.d/20-b.toml"), one)

	// The rights of files and folders are checked.
	require.NoError(t, os.Chmod(main, 0o664))
	_, err = LoadSystem(dir, me(), users)
	require.ErrorContains(t, err, "others than its owner may write it")
	require.NoError(t, os.Chmod(main, 0o644))
	require.NoError(t, os.Chmod(filepath.Join(dir, "conf.d"), 0o777))
	_, err = LoadSystem(dir, me(), users)
	require.ErrorContains(t, err, "conf.d: others than its owner")
	require.NoError(t, os.Chmod(filepath.Join(dir, "conf.d"), 0o755))
	_, err = LoadSystem(dir, me()+1, users)
	require.ErrorContains(t, err, "it belongs to uid")

	// The loader neither waits for a pipe without a writer nor reads a folder.
	require.NoError(t, os.Remove(main))
	require.NoError(t, unix.Mkfifo(main, 0o644))
	_, err = LoadSystem(dir, me(), users)
	require.ErrorContains(t, err, "no regular file")
}

func TestLoadUser(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, OfUser)
	list, err := LoadUser(home, me())
	require.NoError(t, err)
	require.Empty(t, list)
	require.Empty(t, UserStamp(home))
	list, err = LoadUser(filepath.Join(home, "missing"), me())
	require.NoError(t, err)
	require.Empty(t, list)

	write(t, path, one)
	list, err = LoadUser(home, me())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NotEmpty(t, UserStamp(home))
	_, err = LoadUser(home, me()+1)
	require.ErrorContains(t, err, "it belongs to uid")
	require.NoError(t, os.Chmod(path, 0o666))
	_, err = LoadUser(home, me())
	require.ErrorContains(t, err, "others than its owner")

	// The loader does not read a secret behind a link, and the error contains no word of it.
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "hush = 'hush'")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(secret, path))
	_, err = LoadUser(home, me())
	require.ErrorContains(t, err, "symbolic link")
	require.NotContains(t, err.Error(), "hush")
	require.NoError(t, os.RemoveAll(filepath.Join(home, ".config")))
	require.NoError(t, os.MkdirAll(filepath.Join(home, "elsewhere/netnice"), 0o755))
	write(t, filepath.Join(home, "elsewhere/netnice/netnice.toml"), one)
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(home, ".config")))
	_, err = LoadUser(home, me())
	require.ErrorContains(t, err, "symbolic link")
}
