package rulefiles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testutil"
)

// The watch reports each change on the way to a user's own rules, and nothing else that happens in a home.
func TestHomeWatch(t *testing.T) {
	const uid = 1_999_000_300
	var w homeWatch
	require.NoError(t, w.open())
	defer w.close()
	home := t.TempDir()
	path := func(parts ...string) string { return filepath.Join(append([]string{home}, parts...)...) }
	looks := func() { require.True(t, w.add(uid, home)) }
	told := func(what string, want bool) {
		t.Helper()
		is := false
		for begin := time.Now(); !is && time.Since(begin) < 2*time.Second; time.Sleep(time.Millisecond) {
			if is = w.take(uid); !want && time.Since(begin) > 3*homeReadPause {
				break
			}
		}
		require.Equal(t, want, is, what)
	}
	looks()
	require.NoError(t, os.WriteFile(path("mail"), nil, 0o600))
	told("another file in the home", false)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"the first folder", func() error { return os.Mkdir(path(".config"), 0o755) }},
		{"the second folder", func() error { return os.Mkdir(path(".config", "netnice"), 0o755) }},
		{"the file", func() error { return os.WriteFile(path(".config", "netnice", "netnice.toml"), []byte("#"), 0o600) }},
		{"its text", func() error { return os.WriteFile(path(".config", "netnice", "netnice.toml"), []byte("##"), 0o600) }},
		{"its mode", func() error { return os.Chmod(path(".config", "netnice", "netnice.toml"), 0o644) }},
		{"the file removed", func() error { return os.Remove(path(".config", "netnice", "netnice.toml")) }},
		{"a folder renamed", func() error { return os.Rename(path(".config"), path("config")) }},
		{"the folder back", func() error { return os.Rename(path("config"), path(".config")) }},
		{"all removed", func() error { return os.RemoveAll(path(".config")) }},
	} {
		require.NoError(t, step.do(), step.name)
		told(step.name, true)
		looks()
		time.Sleep(2 * homeReadPause) // further events of the same step
		w.take(uid)
	}
	// Another file beside the rules is no news. Renamed folders are not watched for ever.
	require.NoError(t, os.MkdirAll(path(".config", "netnice"), 0o755))
	told("the folders again", true)
	looks()
	time.Sleep(2 * homeReadPause)
	w.take(uid)
	require.NoError(t, os.WriteFile(path(".config", "netnice", "notes"), nil, 0o600))
	told("another file beside the rules", false)
	for i := range 3 * mostWatchedOfUser {
		require.NoError(t, os.Rename(path(".config"), path(fmt.Sprint("config", i))))
		require.NoError(t, os.MkdirAll(path(".config", "netnice"), 0o755))
		looks()
	}
	looks()
	w.mu.Lock()
	require.LessOrEqual(t, len(w.of), mostWatchedOfUser)
	w.mu.Unlock()
	time.Sleep(2 * homeReadPause)
	w.take(uid)
	require.NoError(t, os.WriteFile(path(".config", "netnice", "netnice.toml"), nil, 0o600))
	told("the file, after many renames", true)
	require.NoError(t, os.RemoveAll(path(".config")))
	told("all removed again", true)
	looks()
	time.Sleep(2 * homeReadPause)
	w.take(uid)
	// A link leads to a folder that is not the user's. It is not followed.
	elsewhere := t.TempDir()
	require.NoError(t, os.Symlink(elsewhere, path(".config")))
	told("a link", true)
	looks()
	require.NoError(t, os.Mkdir(filepath.Join(elsewhere, "netnice"), 0o755))
	told("a folder behind a link", false)
	require.False(t, w.add(uid, path("nosuch")), "a home that does not exist is not watched")
}

// A change of the rules of a user acts at once, though the source looks at nothing else then.
func TestOwnRulesActAtOnce(t *testing.T) {
	testutil.RequireRoot(t)
	const uid = 1_999_000_310
	home := t.TempDir()
	require.NoError(t, os.Chmod(home, 0o755))
	require.NoError(t, os.Chown(home, uid, uid))
	c := newHarness(t, "", func(o *Options) {
		o.Tick = time.Hour
		o.Homes = func() (map[uint32]string, error) { return map[uint32]string{uid: home}, nil }
	})
	pid := c.Run(name("mine"), uid)
	folder := filepath.Join(home, ".config", "netnice")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	for _, rate := range []uint64{1e6, 2e6} {
		file := filepath.Join(folder, "netnice.toml")
		require.NoError(t, os.WriteFile(file, []byte("[[rule]]\nprogram = '"+name("mine")+"'\nup = '"+map[uint64]string{1e6: "1MB/s", 2e6: "2MB/s"}[rate]+"'\n"), 0o644))
		for _, f := range []string{filepath.Join(home, ".config"), folder, file} {
			require.NoError(t, os.Chown(f, uid, uid))
		}
		begin := time.Now()
		c.eventually("the rule holds", func() bool { return c.limit(pid) == rate })
		t.Logf("after %v", time.Since(begin))
	}
}

// A change of the administrator's rules acts at once as well, also in a folder that is new.
func TestSystemRulesActAtOnce(t *testing.T) {
	testutil.RequireRoot(t)
	c := newHarness(t, "", func(o *Options) { o.Tick = time.Hour })
	pid := c.Run(name("its"), 0)
	c.Write(rule(name("its"), "up = '1MB/s'"))
	c.eventually("the rule holds", func() bool { return c.limit(pid) == 1e6 })
	require.NoError(t, os.Mkdir(filepath.Join(c.System(), "conf.d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(c.System(), "conf.d", "more.toml"), []byte(rule(name("its"), "up = '500kB/s'")), 0o644))
	c.Write("")
	c.eventually("the other file's rule holds", func() bool { return c.limit(pid) == 5e5 })
}
