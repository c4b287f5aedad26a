// Package rulefilestest has files of rules for tests, and programs that rules match.
package rulefilestest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/rules"
)

// Program returns a program name that no other process of the machine has.
func Program(what string) string { return fmt.Sprintf("nn%d%s", os.Getpid()%100000, what) }

// Rule returns a rule for a program.
func Rule(program, rest string) string {
	return fmt.Sprintf("[[rule]]\nname = '%s'\nprogram = '%[1]s'\n%s\n", program, rest)
}

// Files are the administrator's rules and users' homes, in a folder of a test.
type Files struct {
	t   testing.TB
	dir string

	mu    sync.Mutex
	homes map[uint32]string
}

// New makes the administrator's folder of rules inside dir.
func New(t testing.TB, dir string) *Files {
	t.Helper()
	f := &Files{t: t, dir: dir, homes: make(map[uint32]string)}
	require.NoError(t, os.MkdirAll(f.System(), 0o755))
	return f
}

// System returns the folder of the administrator's rules.
func (f *Files) System() string { return filepath.Join(f.dir, "rules") }

// Write replaces the administrator's rules.
func (f *Files) Write(text string) {
	f.t.Helper()
	path := filepath.Join(f.System(), "netnice.toml")
	require.NoError(f.t, os.WriteFile(path+".new", []byte(text), 0o644))
	require.NoError(f.t, os.Rename(path+".new", path))
}

// Homes returns the homes by user, for the part that reads rules.
func (f *Files) Homes() (map[uint32]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.homes), nil
}

// AddHome gives a test user a home.
func (f *Files) AddHome(uid uint32, dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.homes[uid] = dir
}

// Home returns the home of a test user.
func (f *Files) Home(uid uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.homes[uid]
}

// WriteOwn gives a test user a home with a rule file of their own.
func (f *Files) WriteOwn(uid uint32, text string) {
	f.t.Helper()
	home := filepath.Join(f.dir, fmt.Sprint("home", uid))
	path := filepath.Join(home, rules.OfUser)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o644))
	require.NoError(f.t, os.Chown(path, int(uid), int(uid)))
	f.AddHome(uid, home)
}

// TouchOwn makes a user's own rules seem changed.
func (f *Files) TouchOwn(uid uint32) {
	f.t.Helper()
	now := time.Now()
	require.NoError(f.t, os.Chtimes(filepath.Join(f.Home(uid), rules.OfUser), now, now))
}

// Copy makes a program of that name, which is a copy of another one, and returns its path.
func (f *Files) Copy(of, name string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, "bin", name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	if _, err := os.Stat(path); err != nil {
		original, err := exec.LookPath(of)
		require.NoError(f.t, err)
		// Another process copies the file: processes that are started meanwhile would inherit this process's writable
		// descriptor.
		require.NoError(f.t, exec.Command("cp", original, path).Run())
	}
	return path
}

// Run starts a program of that name, which sleeps, as a user. It ends with the test.
func (f *Files) Run(name string, uid uint32) int {
	f.t.Helper()
	cmd := exec.Command(f.Copy("sleep", name), "60")
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	require.NoError(f.t, cmd.Start())
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
