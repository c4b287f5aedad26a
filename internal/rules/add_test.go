package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An administrator's new rule gets a file of its own, for any name of the program.
func TestAddToSystem(t *testing.T) {
	for program, file := range map[string]string{
		"curl":          "always-curl.toml",
		"/usr/bin/curl": "always-usr-bin-curl-f0da95.toml",
		"python3*":      "always-python3--c3ae40.toml",
		`it's "x" é`:    "always-it-s--x----061633.toml",
		"..":            "always-...toml",
	} {
		dir := t.TempDir()
		draft := Draft{Name: program, Program: program, Total: "1MB/s"}
		added, err := draft.AddToSystem(dir, me(), users)
		require.NoError(t, err, program)
		require.Equal(t, filepath.Join(dir, "conf.d", file), added.Path)
		require.True(t, added.New)
		write(t, added.Path, string(added.Text))
		list, err := LoadSystem(dir, me(), users)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, added.Line, list[0].Line)
		require.Equal(t, program, list[0].programs[0].text)
		require.Equal(t, uint64(1e6), *list[0].Limits.TotalBytesPerSec)

		var there *ExistsError
		_, err = draft.AddToSystem(dir, me(), users)
		require.ErrorAs(t, err, &there)
		require.Equal(t, added.Path, there.File)
		require.Equal(t, 1, there.Line)
	}
}

// Programs whose names have the same letters, or begin alike, have files of their own.
func TestFilesOfProgramsDiffer(t *testing.T) {
	of := make(map[string]string)
	for _, program := range []string{"a-b", "a/b", "/a/b", "-a-b", "a b", "é", "è", strings.Repeat("x", 100), strings.Repeat("x", 101), strings.Repeat("x", 102)} {
		file := fileOf(program)
		require.Empty(t, of[file], "%q has the same file %s", program, file)
		require.LessOrEqual(t, len(file), 255)
		of[file] = program
	}
}

// AddToSystem does not change an existing file of the rule's name, also if it has no rule for the program. A rule for a
// part of the program's traffic does not conflict.
func TestAddToSystemBesideOthers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "netnice.toml"), "[[rule]]\nprogram = 'curl'\nto = '10.0.0.0/8'\nup = '1MB/s'\n")
	draft := Draft{Name: "curl", Program: "curl", Up: "1MB/s"}
	_, err := draft.AddToSystem(dir, me(), users)
	require.NoError(t, err)
	path := filepath.Join(dir, "conf.d/always-curl.toml")
	write(t, path, one)
	_, err = draft.AddToSystem(dir, me(), users)
	var there *ExistsError
	require.ErrorAs(t, err, &there)
	require.Equal(t, ExistsError{Program: "curl", File: path}, *there)
}

// A user's own file gets the rule at its end, and stays within the bounds of a user's file.
func TestAddToUser(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, OfUser)
	draft := Draft{Program: "curl", Up: "1MB/s"}
	added, err := draft.AddToUser(home, me())
	require.NoError(t, err)
	require.True(t, added.New)
	require.Equal(t, path, added.Path)

	write(t, path, "# mine\n"+one+"\n\n")
	added, err = draft.AddToUser(home, me())
	require.NoError(t, err)
	require.False(t, added.New)
	require.Equal(t, 6, added.Line)
	require.True(t, strings.HasPrefix(string(added.Text), "# mine\n"+one+"\n[[rule]]\n"), "%s", added.Text)

	var mistakes Problems
	write(t, path, strings.Repeat("[[rule]]\nprogram = 'x'\nup = '1MB/s'\n", MaxUserRules))
	_, err = draft.AddToUser(home, me())
	require.ErrorAs(t, err, &mistakes)
	write(t, path, "rule = [{program = 'x', up = '1MB/s'}]\n")
	_, err = draft.AddToUser(home, me())
	require.ErrorAs(t, err, &mistakes)

	require.NoError(t, os.Rename(path, path+".elsewhere"))
	require.NoError(t, os.Symlink(path+".elsewhere", path))
	_, err = draft.AddToUser(home, me())
	require.ErrorContains(t, err, "symbolic link")
}

// A mistake in the new rule is reported without a position in a file. A rule that only the administrator may add is
// denied to others.
func TestDraftMistakes(t *testing.T) {
	var mistake *DraftError
	for _, d := range []Draft{{Program: "curl", Weight: 200}, {Program: "curl", Up: "1MB/s", Min: "1kB/s"}} {
		_, err := d.AddToUser(t.TempDir(), me())
		require.ErrorAs(t, err, &mistake)
		require.True(t, mistake.Denied)
		require.NotContains(t, err.Error(), ":1:")
		_, err = d.AddToSystem(t.TempDir(), me(), users)
		require.NoError(t, err)
	}
	nothing := Draft{Program: "curl"}
	_, err := nothing.AddToUser(t.TempDir(), me())
	require.ErrorAs(t, err, &mistake)
	require.False(t, mistake.Denied)
	_, err = nothing.AddToSystem(t.TempDir(), me(), users)
	require.ErrorAs(t, err, &mistake)
	require.False(t, mistake.Denied)
}

// A rule is not added to files that the daemon would not read: files and folders that belong to others or that others
// may write, and pipes. The check does not wait for a pipe.
func TestAddToUntrusted(t *testing.T) {
	draft := Draft{Name: "curl", Program: "curl", Up: "1MB/s"}
	dir := filepath.Join(t.TempDir(), "netnice")
	write(t, filepath.Join(dir, "conf.d/20-b.toml"), one)
	_, err := draft.AddToSystem(dir, me(), users)
	require.NoError(t, err)
	_, err = draft.AddToSystem(dir, me()+1, users)
	require.ErrorContains(t, err, "it belongs to uid")
	for _, path := range []string{"conf.d/20-b.toml", "conf.d"} {
		path = filepath.Join(dir, path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, info.Mode().Perm()|0o020))
		_, err = draft.AddToSystem(dir, me(), users)
		require.ErrorContains(t, err, "others than its owner may write it")
		require.NoError(t, os.Chmod(path, info.Mode().Perm()))
	}
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "conf.d/30-c.toml"), 0o644))
	_, err = draft.AddToSystem(dir, me(), users)
	require.ErrorContains(t, err, "no regular file")

	home := t.TempDir()
	path := filepath.Join(home, OfUser)
	write(t, path, one)
	require.NoError(t, os.Chmod(path, 0o666))
	_, err = draft.AddToUser(home, me())
	require.ErrorContains(t, err, "others than its owner may write it")
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o644))
	_, err = draft.AddToUser(home, me())
	require.ErrorContains(t, err, "no regular file")
}

// The notes name rules of other patterns that may match the same programs, and say which rule holds.
func TestAddNotesOverlaps(t *testing.T) {
	rule := func(program string) string { return "[[rule]]\nprogram = '" + program + "'\nup = '1MB/s'\n" }
	dir := t.TempDir()
	first, last := filepath.Join(dir, "conf.d/10-a.toml"), filepath.Join(dir, "conf.d/zz.toml")
	write(t, first, rule("python3*")+"\n"+rule("scp"))
	write(t, last, rule("/usr/bin/python3.11")+"also = true\n\n"+rule("/opt/py*"))
	added, err := Draft{Name: "p", Program: "python3.11", Up: "1MB/s"}.AddToSystem(dir, me(), users)
	require.NoError(t, err)
	require.Len(t, added.Notes, 2)
	require.Contains(t, added.Notes[0], first+":1 comes before this one")
	require.Contains(t, added.Notes[1], last+":6 comes after this one")

	home := t.TempDir()
	write(t, filepath.Join(home, OfUser), rule("curl")+"\n"+rule("python3.11"))
	added, err = Draft{Name: "p", Program: "python*", Up: "1MB/s"}.AddToUser(home, me())
	require.NoError(t, err)
	require.Len(t, added.Notes, 1)
	require.Contains(t, added.Notes[0], OfUser+":5 comes before this one")
}
