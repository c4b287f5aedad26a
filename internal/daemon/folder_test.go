package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/cpushare/cpusharetest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/source/prefixlists"
)

// withEachFile starts a daemon with content in each file of the state beside that of the limits, and returns those
// files.
func withEachFile(t *testing.T) (h *harness, files []string) {
	t.Helper()
	fake, processors, p := &enforcetest.Kernel{}, cpusharetest.New(), hostpathtest.New(500e3)
	opts := testOptions(t, fake)
	opts.OpenProcessors = func(cpu.Scopes) (cpushare.Processors, error) { return processors, nil }
	opts.OpenPath = p.Open
	h = withLimits(t, opts, fake)
	h.mustPower(root, sleeper(t).Process.Pid, 50)
	h.meter(false)
	_, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	const list = "file:/lan.txt@user:root"
	_, err = h.Set(t.Context(), root, api.SetRequest{Subject: api.Subject{Kind: api.KindTo, ID: list}, Wish: up(1e6), Prefixes: []string{"10.0.0.0/8"}})
	require.NoError(t, err)
	return h, []string{h.cpuSharePath(), h.systemPath(), h.adaptationPath(), h.lists.Path(prefixlists.Key{RuleSet: enforce.BookAdmin, Path: "/lan.txt"})}
}

// texts returns the content of files, "" for a missing one.
func texts(files []string) (list []string) {
	for _, path := range files {
		text, _ := os.ReadFile(path)
		list = append(list, string(text))
	}
	return list
}

func TestStateFolderIsWrittenAnew(t *testing.T) {
	h, files := withEachFile(t)
	before := texts(files)
	require.NotContains(t, before, "")
	again := func(what string) {
		t.Helper()
		h.eventually(what, func() bool { return equalTexts(before, texts(files)) })
		h.written()
	}
	removeFolder(t, h.opts.StateDir)
	again("all that was in the folder is there again")
	for _, path := range files {
		require.NoError(t, os.Remove(path))
		again(path)
		require.NoError(t, os.WriteFile(path+".put", nil, 0o600))
		require.NoError(t, os.Rename(path+".put", path))
		again(path)
	}

	// The next daemon reads these files, and restores the ones that it has read.
	require.NoError(t, h.stop())
	h = start(t, h.fake, h.opts)
	require.Equal(t, 1, h.cpuShares.Count())
	require.NoError(t, os.RemoveAll(filepath.Join(h.opts.StateDir, prefixlists.Folder)))
	require.NoError(t, os.Remove(h.systemPath()))
	again("what the next daemon has read is there again")
}

func equalTexts(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// The status reports a folder that cannot be made again, with a remedy, and the daemon keeps trying.
func TestStateFolderThatCannotBeMade(t *testing.T) {
	h, files := withEachFile(t)
	before := texts(files)
	putFile(t, h.opts.StateDir)
	problems := func() []api.Problem {
		status, err := h.Status(context.Background())
		require.NoError(t, err)
		return status.Problems
	}
	var list []api.Problem
	h.eventually("it is told", func() bool {
		list = problems()
		return len(list) == 1 && strings.Contains(list[0].Message, "the state folder "+h.opts.StateDir+" was removed")
	})
	require.Contains(t, list[0].Hint, "sudo mv "+h.opts.StateDir)
	answer, err := h.set(root, "user:4250", up(7e6))
	require.NoError(t, err)
	require.Len(t, answer.Warnings, 1)
	require.Contains(t, answer.Warnings[0], "sudo mv "+h.opts.StateDir)

	// The files have failed for so long that the daemon tries them once a minute. Once the folder can be made again, it
	// tries them at once.
	for range 10 {
		for _, path := range append(files, h.file.Path()) {
			h.files.Wrote(path, unix.ENOENT)
		}
	}
	require.NoError(t, os.Remove(h.opts.StateDir))
	h.eventually("all is written anew", func() bool { return equalTexts(before, texts(files)) })
	h.written()
	h.eventually("nothing is wrong any more", func() bool { return len(problems()) == 0 })
}

// A service cannot make the folder that systemd mounts for it: the status says how to make it again for the service.
func TestFolderHint(t *testing.T) {
	service := folderView{service: true}
	readOnly := folderError("/s", &os.PathError{Op: "mkdir", Path: "/s", Err: unix.EROFS})
	for name, c := range map[string]struct {
		err  error
		view folderView
		has  string
	}{
		"service without the folder's mount": {readOnly, service, "sudo nsenter -t 7 -m sh -c 'mount --bind /s /s && mount -o remount,bind,rw /s'"},
		"service, read-only disk":            {readOnly, folderView{service: true, mountPoint: true}, "findmnt -T /s"},
		"read-only disk":                     {readOnly, folderView{}, "findmnt -T /s"},
		"service, full disk":                 {unix.ENOSPC, service, "df /s"},
		"something in the way":               {inTheWay("/s", "a directory", unix.ENOTDIR), folderView{}, "sudo mv /s /s.bad"},
	} {
		t.Run(name, func(t *testing.T) { require.Contains(t, folderHint("/s", 7, c.err, c.view), c.has) })
	}
	require.Empty(t, folderHint("/s", 7, unix.EIO, service))
}

// The status names the actual fault of the folder, which is not always that it was removed.
func TestStateFolderThatIsNotHeld(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	h.mustSet(root, "user:4250", up(7e6))
	dir := h.opts.StateDir
	told := func(has string) {
		t.Helper()
		var problems []api.Problem
		h.eventually(has, func() bool {
			status, err := h.Status(t.Context())
			require.NoError(t, err)
			problems = status.Problems
			return len(problems) > 0 && strings.Contains(problems[0].Message, "the state folder "+dir+" "+has)
		})
		require.NotContains(t, problems[0].Message, "was removed")
		require.NotEmpty(t, problems[0].Hint)
	}
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, os.Symlink(dir, dir)) // a link to itself
	told("cannot be looked at")
	require.NoError(t, os.Remove(dir))
	h.written()

	require.NoError(t, os.Mkdir(dir+".other", 0o755))
	other, err := os.Open(dir + ".other")
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, flock(other))
	require.NoError(t, os.Rename(dir, dir+".gone"))
	require.NoError(t, os.Rename(dir+".other", dir))
	told("was replaced by another")
	require.NoError(t, other.Close())
	h.written()
}
