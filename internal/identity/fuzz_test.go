package identity

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

// These tests put arbitrary texts into the places that users, container engines and the machine's files control. The
// kernel writes the rest of a file of /proc, so the files have its format, with any text in the place of a user's.

// until cuts a text before the first of these characters, and to a length.
func until(text, marks string, most int) string {
	if at := strings.IndexAny(text, marks); at >= 0 {
		text = text[:at]
	}
	return text[:min(len(text), most)]
}

// The resolved process is right for any name of a program, and for any name of its cgroup.
func FuzzProcess(f *testing.F) {
	for _, seed := range []struct{ comm, command, cgroup, exe string }{
		{"rsync", "rsync\x00-a\x00/home/bob/photos\x00backup:\x00", "/user.slice/user-1000.slice/session-3.scope", "/usr/bin/rsync"},
		{"x) R 1 1 (y", "", "/", "/tmp/a (deleted)"},
		{"a\nPPid:\t1\nUid:", "\x00\x00\x00", "/a\r", "/memfd:x (deleted)"},
		{"((sd-pam))", strings.Repeat("x", 5000), "/system.slice/docker-" + strings.Repeat("1", 64) + ".scope", "/"},
		{"", "-bash", "/a:b/0::/c", "a"},
		{" \t ", " ", "/x (deleted)", "/usr/bin/\xff"},
	} {
		f.Add(seed.comm, []byte(seed.command), seed.cgroup, seed.exe, uint64(1000), uint32(1000), uint16(1))
	}
	const pid = 4711
	proc := f.TempDir()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	require.NoError(f, os.Mkdir(dir, 0o755))
	r := newResolver(f, Options{Proc: proc})
	f.Fuzz(func(t *testing.T, comm string, command []byte, cgroup, exe string, ticks uint64, uid uint32, above uint16) {
		comm = until(comm, "\x00", 15) // TASK_COMM_LEN and its end
		cgroup = "/" + until(strings.TrimLeft(cgroup, "/"), "\x00\n", 4000)
		if exe = until(exe, "\x00", 4000); exe == "" {
			exe = "/bin/sh"
		}
		ticks %= 1 << 40
		parent := pid + 1 + int(above)
		escaped := strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(comm)
		for name, text := range map[string]string{
			"comm": comm + "\n",
			"stat": fmt.Sprintf("%d (%s) S %d 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", pid, comm, parent, ticks),
			"status": fmt.Sprintf("Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\nUid:\t%d\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t%d\n",
				escaped, pid, pid, parent, uid, pid),
			"cmdline": string(command),
			"cgroup":  "4:cpu,cpuacct:/other\n1:name=systemd:/else\n0::" + cgroup + "\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		link := filepath.Join(dir, "exe")
		_ = os.Remove(link) // the link may not exist yet
		require.NoError(t, os.Symlink(exe, link))

		res, err := r.Resolve(t.Context(), PIDSubject(pid))
		require.NoError(t, err)
		require.Equal(t, Resolved{
			Subject: PIDSubject(pid), Kind: enforce.KindTree, Key: pid, StartBoottimeNS: ticks * TickNS, UID: uid, Name: comm,
		}, res)
		require.True(t, r.Alive(pid, ticks*TickNS))
		require.Equal(t, []Ancestor{{PID: pid, StartBoottimeNS: ticks * TickNS}}, r.Ancestors(pid))
		gotUID, gotParent, err := r.IDs(pid)
		require.NoError(t, err)
		require.Equal(t, uid, gotUID)
		require.Equal(t, parent, gotParent)
		path, name, err := r.Program(pid)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSuffix(exe, " (deleted)"), path)
		require.Equal(t, strings.TrimSpace(comm), name)
		at, err := r.ProcessCgroup(pid)
		require.NoError(t, err)
		require.Equal(t, cgroup, at)
		if line, err := r.Command(pid); err == nil {
			require.NotContains(t, line, "\x00")
			require.LessOrEqual(t, len(line), mostCommand)
			words := bytes.TrimRight(command[:min(len(command), mostCommand)], "\x00")
			require.Equal(t, strings.ReplaceAll(string(words), "\x00", " "), line)
		} else {
			require.Empty(t, command)
		}
		census, err := r.Census()
		require.NoError(t, err)
		require.Equal(t, map[uint32]int{uid: 1}, census)
	})
}

// below reports whether a folder is in another one.
func below(root, dir string) bool { return strings.HasPrefix(filepath.Clean(dir), root+"/") }

// With any text in the engines' files, a name is refused, is pending, or resolves to a container's cgroup.
func FuzzContainer(f *testing.F) {
	id := func(c string) string { return strings.Repeat(c, 64) }
	docker := fmt.Sprintf(`{"StreamConfig":{},"State":{"Running":true,"Pid":5012},"ID":%q,"Created":"2026-11-20T08:00:00.1Z","Managed":false,"Path":"nginx","Args":["-g"],"Config":{"Hostname":"1111","Labels":{}},"Name":"/web","Driver":"overlay2"}`, id("1"))
	podman := fmt.Sprintf(`[{"id":%q,"names":["pod","also"],"image":"x","layer":"y","metadata":"{\"image-name\":\"docker.io/library/nginx\"}","created":"2026-11-20T08:00:00.1Z","flags":{"MountLabel":""}},{"id":%q,"names":["web"]}]`, id("4"), id("5"))
	for _, name := range []string{"web", "pod", "also", "nerd", "box", "deb", "1111", id("4"), "*", "..", "a/b", ""} {
		f.Add([]byte(docker), []byte(podman), []byte(id("6")+"\n"), name)
	}
	f.Add([]byte(`{"ID":"","Name":"/web"}`), []byte(`[{"id":"../../etc","names":["web"]}]`), []byte(""), "web")
	f.Add([]byte(`{"ID":null,"Name":["web"]}`), []byte(`{"id":1}`), []byte("\x00"), "web")
	f.Add([]byte(`{`), []byte(`[null,{"names":null}]`), []byte("../x"), "nerd")
	mount, lib := f.TempDir(), f.TempDir()
	for _, dir := range []string{
		"/system.slice/docker-" + id("1") + ".scope/init", "/machine.slice/libpod-" + id("4") + ".scope/libpod-" + id("4"),
		"/kubepods/besteffort/pod7/" + id("6"), "/kubepods.slice/crio-" + id("7") + ".scope", "/lxc.payload.box", "/machine.slice/machine-deb.scope",
	} {
		require.NoError(f, os.MkdirAll(filepath.Join(mount, dir), 0o755))
	}
	files := [3]string{"docker/containers/" + id("1") + "/config.v2.json", "containers/storage/overlay-containers/containers.json", "nerdctl/1935db59/names/default/nerd"}
	for i := range files {
		files[i] = filepath.Join(lib, files[i])
		require.NoError(f, os.MkdirAll(filepath.Dir(files[i]), 0o755))
	}
	r := newResolver(f, Options{CgroupRoot: mount, VarLib: lib})
	f.Fuzz(func(t *testing.T, docker, podman, nerdctl []byte, name string) {
		for i, text := range [3][]byte{docker, podman, nerdctl} {
			require.NoError(t, os.WriteFile(files[i], text, 0o600))
		}
		res, err := r.Resolve(t.Context(), api.Subject{Kind: api.KindContainer, ID: name})
		if err != nil {
			var e *api.Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, []string{api.CodeNotFound, api.CodeConflict, api.CodeBadRequest}, e.Code)
			return
		}
		require.Equal(t, enforce.KindCgroup, res.Kind)
		require.Equal(t, api.KindContainer, res.Subject.Kind)
		if res.Pending() {
			require.Empty(t, res.Dir)
			return
		}
		require.True(t, below(mount, res.Dir), res.Dir)
		at, err := CgroupID(res.Dir)
		require.NoError(t, err)
		require.Equal(t, at, res.Key)
		base := filepath.Base(res.Dir)
		switch m := containerCgroup.FindStringSubmatch(base); {
		case m == nil:
			require.Contains(t, []string{"lxc.payload." + name, "machine-" + name + ".scope"}, base)
		case !strings.HasPrefix(m[1], name): // then an engine's file has the name
			require.True(t, slices.Contains(r.containersNamed(name), m[1]), "%s is no container that is called %s", base, name)
		}
	})
}

// With any answer of the service manager, a unit's cgroup is below the root cgroup.
func FuzzUnit(f *testing.F) {
	for _, seed := range [][2]string{
		{"cron", "/system.slice/cron.service"},
		{"cron.service", ""},
		{"-.slice", "/"},
		{"x", "/../outside"},
		{"x", "../../.."},
		{"user@1000", "/user.slice/user-1000.slice/user@1000.service"},
		{"a/b", "/a"},
		{"", "/system.slice"},
		{"x", "/system.slice/\x00"},
		{"x", "//"},
	} {
		f.Add(seed[0], seed[1])
	}
	within := f.TempDir()
	mount := filepath.Join(within, "cgroup")
	for _, dir := range []string{"outside", "cgroup/system.slice/cron.service", "cgroup/user.slice/user-1000.slice/user@1000.service"} {
		require.NoError(f, os.MkdirAll(filepath.Join(within, dir), 0o755))
	}
	f.Fuzz(func(t *testing.T, name, path string) {
		r := newResolver(t, Options{CgroupRoot: mount, Systemd: fakeSystemd{units: map[string]string{unitName(name): path}}})
		res, err := r.Resolve(context.Background(), api.Subject{Kind: api.KindUnit, ID: name})
		if err != nil {
			require.Zero(t, res)
			return
		}
		require.Equal(t, enforce.KindCgroup, res.Kind)
		require.Equal(t, unitName(name), res.Subject.ID)
		if !res.Pending() {
			require.True(t, below(mount, res.Dir), res.Dir)
		}
	})
}

// With any text in the files of accounts, no range contains root, and no id belongs to two users.
func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/bash\nbob:x:1000:1000:Bob,,,:/home/bob:/bin/sh\n", "3000001:200000:65536\n3000002:100000:65536\nroot:300000:65536\n")
	f.Add("a:x:1:1::relative:/bin/sh\nb:x:1:1:::\n::::::\n", "3000001:4294967294:2\n3000001:1:4294967295\n#:1:1\n::\n3000002:1:0")
	f.Add("x:x:4294967296:0::/x:\n", "0:5:5\n4294967295:7:7\n")
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, passwd, subuid string) {
		require.NoError(t, os.WriteFile(path, []byte(passwd), 0o600))
		accounts := account.New(account.Options{Passwd: path, Getent: []string{"/nonexistent"}})
		homes := accounts.Homes()
		require.NotContains(t, homes, uint32(0))
		for _, home := range homes {
			require.True(t, strings.HasPrefix(home, "/"))
		}
		require.NoError(t, os.WriteFile(path, []byte(until(subuid, "\x00", 1000)), 0o600)) // users are looked up in the same file
		list, _, err := Subordinates(path, func(name string) (uint32, error) { return accounts.UID(t.Context(), name) })
		require.NoError(t, err)
		for i, s := range list {
			require.True(t, s.Owner != 0 && s.First > 0 && s.First <= s.Last && s.Last < 1<<32-1, "%+v", s)
			require.True(t, i == 0 || list[i-1].Last < s.First, "%+v", list)
		}
	})
}
