package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// engines is a machine with containers of several engines: the engines' files, and the containers' cgroups.
type engines struct {
	t          *testing.T
	mount, lib string
	*Resolver
}

func newEngines(t *testing.T) engines {
	t.Helper()
	e := engines{t: t, mount: t.TempDir(), lib: t.TempDir()}
	e.Resolver = newResolver(t, Options{CgroupRoot: e.mount, VarLib: e.lib})
	return e
}

func idOf(digit string) string { return strings.Repeat(digit, 64) }

// docker writes a container's file as Docker does.
func (e engines) docker(digit, name string) {
	e.t.Helper()
	file := filepath.Join(e.lib, "docker/containers", idOf(digit), "config.v2.json")
	require.NoError(e.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(e.t, os.WriteFile(file, fmt.Appendf(nil, `{"ID":%q,"Name":"/%s"}`, idOf(digit), name), 0o600))
}

func (e engines) cgroups(dirs ...string) {
	e.t.Helper()
	for _, dir := range dirs {
		require.NoError(e.t, os.MkdirAll(filepath.Join(e.mount, dir), 0o755))
	}
}

func TestContainers(t *testing.T) {
	e := newEngines(t)
	e.docker("1", "web")
	e.docker("2", "idle") // does not run
	e.docker("3", "twin")
	podman := filepath.Join(e.lib, "containers/storage/overlay-containers/containers.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(podman), 0o755))
	require.NoError(t, os.WriteFile(podman, fmt.Appendf(nil, `[{"id":%q,"names":["pod","also"]},{"id":%q,"names":["twin"]}]`, idOf("4"), idOf("5")), 0o600))
	e.cgroups(
		"/system.slice/docker-"+idOf("1")+".scope",
		"/machine.slice/libpod-"+idOf("4")+".scope/libpod-"+idOf("4"), // one, which is made twice
		"/machine.slice/libpod-"+idOf("5")+".scope",
		"/kubepods.slice/crio-"+idOf("7")+".scope",
		"/lxc.payload.box/lxc.payload.within", // what a container makes inside is its own
		"/machine.slice/machine-deb.scope",
		`/machine.slice/machine-qemu\x2d1\x2dvm.scope`, // a virtual machine, which no name of a container is
		"/system.slice/cron.service",
	)
	list, err := e.Containers()
	require.NoError(t, err)
	var got []string
	for _, c := range list {
		got = append(got, c.Subject())
		res, err := e.container(c.Subject())
		require.NoError(t, err, "what is listed can be named")
		require.Equal(t, c.Dir, res.Dir)
	}
	// Two containers are called twin. The running one is listed by its id, and no text identifies the other one.
	require.Equal(t, []string{idOf("5")[:shortID], idOf("7")[:shortID], "box", "deb", "idle", "pod", "web"}, got)
}

func TestContainersOfUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives folders away") // TestContainerOfItsName does the same
	}
	e := newEngines(t)
	own := "/user.slice/libpod-" + idOf("8") + ".scope"
	e.cgroups(own)
	require.NoError(t, os.Chown(filepath.Join(e.mount, "/user.slice"), 1000, 1000))
	list, err := e.Containers()
	require.NoError(t, err)
	require.Empty(t, list, "any user could make such a folder")
	require.Zero(t, e.ContainerOf(own+"/init").ID)
}

func TestContainerOf(t *testing.T) {
	e := newEngines(t)
	e.docker("1", "web")
	web := "/system.slice/docker-" + idOf("1") + ".scope"
	e.cgroups(web+"/init", web+"/lxc.payload.box", "/lxc.payload.box", "/system.slice/cron.service", "/kubepods/"+idOf("6"))
	for cgroup, want := range map[string]Container{
		web:                          {Names: []string{"web"}, ID: idOf("1")},
		web + "/init":                {Names: []string{"web"}, ID: idOf("1")},
		web + "/lxc.payload.box":     {Names: []string{"web"}, ID: idOf("1")}, // the outermost
		"/lxc.payload.box":           {Names: []string{"box"}},
		"/kubepods/" + idOf("6"):     {ID: idOf("6")},
		"/system.slice/cron.service": {},
		"/":                          {},
		"":                           {},
		"/lxc.payload.gone":          {}, // a missing folder has no known owner
	} {
		got := e.ContainerOf(cgroup)
		if want.ID != "" || want.Names != nil {
			require.NotEmpty(t, got.Dir, cgroup)
		}
		got.Dir = ""
		require.Equal(t, want, got, cgroup)
	}
}

// The resolver looks names up again after a while, and not each time.
func TestNamesOfContainersAreRemembered(t *testing.T) {
	e := newEngines(t)
	e.docker("1", "before")
	require.Equal(t, []string{"before"}, e.knownNames(idOf("1")))
	e.docker("1", "after")
	require.Equal(t, []string{"before"}, e.knownNames(idOf("1")))
	e.known.names[idOf("1")] = namesUntil{names: []string{"before"}, until: time.Now().Add(-time.Nanosecond)}
	require.Equal(t, []string{"after"}, e.knownNames(idOf("1")))
	for i := range mostKnown + 1 { // ids that users have made up take no more memory
		e.knownNames(fmt.Sprint(i))
	}
	require.LessOrEqual(t, len(e.known.names), mostKnown)
}

// The resolver reads an engine's list of all containers once, until the list changes, for any number of starting
// containers.
func TestListsOfEnginesAreReadOnce(t *testing.T) {
	e := newEngines(t)
	write := func(file, text string) string {
		file = filepath.Join(e.lib, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	e.docker("1", "web")
	other := filepath.Join(e.lib, "docker/containers", idOf("2"), "config.v2.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(other), 0o755))
	require.NoError(t, unix.Mkfifo(other, 0o600)) // a reader would wait for ever
	store := write("containers/storage/overlay-containers/containers.json", fmt.Sprintf(`[{"id":%q,"names":["pod"]}]`, idOf("3")))
	nerd := write("nerdctl/1935db59/names/default/nerd", idOf("4"))
	time.Sleep(folderAge + storeAge)
	for digit, name := range map[string]string{"1": "web", "3": "pod", "4": "nerd"} {
		require.Equal(t, []string{name}, e.namesOf(idOf(digit)))
	}
	first := e.listed.lists
	require.Len(t, first, 2)
	for _, list := range first {
		list.names["mark"] = nil // the mark would be missing if the list were read again
	}
	require.Empty(t, e.namesOf(idOf("5")), "unknown to all")
	marked := func(path string) bool { _, is := e.listed.lists[path].names["mark"]; return is }
	require.True(t, marked(store))
	require.True(t, marked(filepath.Dir(nerd)))

	write("nerdctl/1935db59/names/default/next", idOf("5"))
	require.Equal(t, []string{"next"}, e.namesOf(idOf("5")))
	write("containers/storage/overlay-containers/containers.json", fmt.Sprintf(`[{"id":%q,"names":["other"]}]`, idOf("3")))
	require.Equal(t, []string{"other"}, e.namesOf(idOf("3")))
	require.NoError(t, os.RemoveAll(filepath.Dir(nerd)))
	require.Empty(t, e.namesOf(idOf("4")))
	require.NotContains(t, e.listed.lists, filepath.Dir(nerd), "what has gone is not remembered")
}

func TestUnitNames(t *testing.T) {
	e := newEngines(t)
	e.cgroups("/system.slice/cron.service", "/user.slice/user-1000.slice/x.scope", "/init.scope", "/plain/cron.service")
	names, err := e.Units()
	require.NoError(t, err)
	require.Equal(t, []string{"cron.service", "init.scope", "system.slice", "user-1000.slice", "user.slice", "x.scope"}, names)
}

func TestProcessTable(t *testing.T) {
	list, err := newResolver(t, Options{}).ProcessTable()
	require.NoError(t, err)
	at := slices.IndexFunc(list, func(p ProcessInfo) bool { return p.PID == os.Getpid() })
	require.GreaterOrEqual(t, at, 0)
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, ProcessInfo{
		PID: os.Getpid(), Parent: os.Getppid(), UID: uint32(os.Getuid()), Path: self, Comm: list[at].Comm,
	}, list[at])
	require.NotEmpty(t, list[at].Comm)
	require.False(t, slices.ContainsFunc(list, func(p ProcessInfo) bool { return p.Comm == "kthreadd" }))
}
