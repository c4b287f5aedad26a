package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

func TestContainer(t *testing.T) {
	mount, lib := t.TempDir(), t.TempDir()
	id := func(c string) string { return strings.Repeat(c, 64) }
	write := func(file, text string) {
		file = filepath.Join(lib, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for name, at := range map[string]string{"web": id("1"), "idle": id("2"), "twin": id("3")} {
		write("docker/containers/"+at+"/config.v2.json", fmt.Sprintf(`{"ID":%q,"Name":"/%s","State":{}}`, at, name))
	}
	write("docker/containers/"+id("0")+"/config.v2.json", "{") // a file that is being written
	write("containers/storage/overlay-containers/containers.json",
		fmt.Sprintf(`[{"id":%q,"names":["pod","also"]},{"id":%q,"names":["twin"]}]`, id("4"), id("5")))
	write("nerdctl/1935db59/names/default/nerd", id("6"))

	dirs := map[string]string{
		"docker": "/system.slice/docker-" + id("1") + ".scope",
		"podman": "/machine.slice/libpod-" + id("4") + ".scope",
		"nerd":   "/kubepods/besteffort/pod7/" + id("6"),
		"crio":   "/kubepods.slice/crio-" + id("7") + ".scope",
		"near":   "/kubepods.slice/crio-" + id("7")[:63] + "8.scope",
		"lxc":    "/lxc.payload.box",
		"nspawn": "/machine.slice/machine-deb.scope",
	}
	for _, dir := range dirs {
		require.NoError(t, os.MkdirAll(filepath.Join(mount, dir, "init"), 0o755))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(mount, dirs["podman"], "libpod-"+id("4")), 0o755))
	r := newResolver(t, Options{CgroupRoot: mount, VarLib: lib})
	for name, want := range map[string]struct{ subject, dir string }{
		"web": {"web", "docker"}, "pod": {"pod", "podman"}, "also": {"also", "podman"}, "nerd": {"nerd", "nerd"},
		id("1"): {id("1"), "docker"}, id("1")[:20]: {id("1")[:20], "docker"}, "1111": {id("1")[:shortID], "docker"},
		id("7"): {id("7"), "crio"}, "box": {"box", "lxc"}, "deb": {"deb", "nspawn"},
	} {
		res, err := resolve(t, r, "container:"+name)
		require.NoError(t, err, name)
		require.Equal(t, filepath.Join(mount, dirs[want.dir]), res.Dir, name)
		require.Equal(t, api.Subject{Kind: api.KindContainer, ID: want.subject}, res.Subject)
		require.Equal(t, enforce.KindCgroup, res.Kind)
		require.True(t, res.Named())
		require.False(t, res.Pending())
	}
	res, err := resolve(t, r, "container:idle")
	require.NoError(t, err, "it does not run")
	require.True(t, res.Pending())
	for name, code := range map[string]string{
		"absent": api.CodeNotFound, "beef": api.CodeNotFound, "twin": api.CodeConflict, "7777": api.CodeConflict,
		"a/b": api.CodeBadRequest, "*": api.CodeBadRequest, "-x": api.CodeBadRequest,
	} {
		_, err := resolve(t, r, "container:"+name)
		requireCode(t, code, err)
	}
}

// A user who may make cgroups names them freely, so only the cgroups of the machine's engines count.
func TestContainerOfItsName(t *testing.T) {
	mount, lib := t.TempDir(), t.TempDir()
	id := func(c string) string { return strings.Repeat(c, 64) }
	known := filepath.Join(lib, "docker/containers", id("1"))
	require.NoError(t, os.MkdirAll(known, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(known, "config.v2.json"), fmt.Appendf(nil, `{"ID":%q,"Name":"/web"}`, id("1")), 0o600))
	within := "/system.slice/docker-" + id("9") + ".scope" // in a container whose root may make cgroups
	for _, dir := range []string{
		"/system.slice/docker-" + id("1") + ".scope", within + "/docker-" + id("1") + ".scope",
		within + "/docker-" + id("2") + ".scope", within + "/lxc.payload.box", "/lxc.payload.box",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(mount, dir), 0o755))
	}
	r := newResolver(t, Options{CgroupRoot: mount, VarLib: lib})
	for name, dir := range map[string]string{
		"web": "/system.slice/docker-" + id("1") + ".scope", id("1"): "/system.slice/docker-" + id("1") + ".scope",
		"box": "/lxc.payload.box", id("2"): within + "/docker-" + id("2") + ".scope", // the container's own
	} {
		res, err := resolve(t, r, "container:"+name)
		require.NoError(t, err, name)
		require.Equal(t, filepath.Join(mount, dir), res.Dir, name)
	}
	require.NoError(t, os.Remove(filepath.Join(mount, "/system.slice/docker-"+id("1")+".scope")))
	res, err := resolve(t, r, "container:web")
	require.NoError(t, err)
	require.True(t, res.Pending(), "between two of its runs it is nobody else")
	_, err = resolve(t, r, "container:"+id("1"))
	requireCode(t, api.CodeNotFound, err)

	if os.Getuid() == 0 {
		user := filepath.Join(mount, "user.slice/docker-"+id("1")+".scope")
		require.NoError(t, os.MkdirAll(user, 0o755))
		require.NoError(t, os.Chown(filepath.Dir(user), 1000, 1000))
		res, err := resolve(t, r, "container:web")
		require.NoError(t, err)
		require.True(t, res.Pending(), "a user's folder of its name")
	}
}

// The engines of LXC and systemd-nspawn, and systemd itself, name cgroups after their containers and units alone. A user
// who makes such a folder in an own subtree does not take the limit away from the machine's, whichever comes first.
func TestCgroupOfItsNameInUsersSubtree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it gives folders to another user")
	}
	for _, c := range []struct{ subject, base string }{
		{"container:box", "lxc.payload.box"},
		{"container:deb", "machine-deb.scope"},
		{"unit:web.service", "web.service"},
		{"unit:session-7.scope", "session-7.scope"},
		{"unit:app.slice", "app.slice"},
	} {
		t.Run(c.base, func(t *testing.T) {
			mount := t.TempDir()
			machines := filepath.Join(mount, "system.slice", c.base)
			subtree := filepath.Join(mount, "user.slice/user-1000.slice/user@1000.service")
			users := filepath.Join(subtree, "own", c.base)
			for _, dir := range []string{filepath.Dir(machines), users} {
				require.NoError(t, os.MkdirAll(dir, 0o755))
			}
			for _, dir := range []string{subtree, filepath.Dir(users), users} {
				require.NoError(t, os.Chown(dir, 1000, 1000))
			}
			r := newResolver(t, Options{CgroupRoot: mount, VarLib: t.TempDir()})
			res, err := resolve(t, r, c.subject)
			require.NoError(t, err)
			require.Equal(t, users, res.Dir, "a user's container or unit, while the machine has none of its name")
			require.False(t, r.Stays(res), "the machine's may come")

			require.NoError(t, os.Mkdir(machines, 0o755))
			res, err = resolve(t, r, c.subject)
			require.NoError(t, err)
			require.Equal(t, machines, res.Dir)
			require.True(t, r.Stays(res))

			require.NoError(t, os.Remove(machines))
			require.False(t, r.Stays(res))
			// A folder of the machine's owner below a user's is no better: the user has moved it there.
			below := filepath.Join(subtree, "own/other", c.base)
			require.NoError(t, os.MkdirAll(below, 0o755))
			require.NoError(t, os.Mkdir(machines, 0o755))
			res, err = resolve(t, r, c.subject)
			require.NoError(t, err)
			require.Equal(t, machines, res.Dir)
		})
	}
}
