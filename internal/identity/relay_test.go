package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeProcess has the contents of a process's folder below /proc.
type fakeProcess struct {
	netns, uidMap string
	exe, comm     string
	command       []string
	uid           int
}

// fakeProc makes a /proc of these processes, by their ids.
func fakeProc(t *testing.T, processes map[int]fakeProcess) string {
	t.Helper()
	proc := t.TempDir()
	for pid, p := range processes {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "ns"), 0o755))
		require.NoError(t, os.Symlink("net:["+p.netns+"]", filepath.Join(dir, "ns/net")))
		require.NoError(t, os.Symlink(p.exe, filepath.Join(dir, "exe")))
		for name, text := range map[string]string{
			"comm": p.comm + "\n", "uid_map": p.uidMap, "cmdline": strings.Join(p.command, "\x00") + "\x00",
			"status": fmt.Sprintf("Name:\t%s\nPPid:\t1\nUid:\t%d\t%d\t%d\t%d\n", p.comm, p.uid, p.uid, p.uid, p.uid),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	return proc
}

// The cases are processes that may hand connections over to the ports of a rootless engine's container.
func TestLoopbackRelay(t *testing.T) {
	const (
		rootless = "         0       1000          1\n         1     100000      65536\n"
		ofRoot   = "         0          0 4294967295\n"
		pastaExe = "/usr/bin/passt.avx2"
		path     = "/run/user/1000/netns/netns-5"
	)
	web := fakeProcess{netns: "5", uidMap: rootless, exe: "/bin/web", comm: "web"}
	pasta := func(uid int, command ...string) fakeProcess {
		return fakeProcess{netns: "1", uidMap: ofRoot, exe: pastaExe, comm: "pasta.avx2", uid: uid, command: append([]string{"/usr/bin/pasta"}, command...)}
	}
	port := fakeProcess{netns: "5", exe: "/usr/libexec/podman/rootlessport", comm: "exe"}
	for name, c := range map[string]struct {
		member fakeProcess // process 10 of the cgroup
		other  fakeProcess // process 20, outside
		want   Relay
	}{
		"rootlessport":                        {web, port, Relay{PID: 20, Name: "rootlessport"}},
		"rootlessport of another container":   {web, fakeProcess{netns: "6", exe: port.exe, comm: "exe"}, Relay{}},
		"rootlessport, and the machine's own": {fakeProcess{netns: "1", uidMap: ofRoot, exe: "/bin/web", comm: "web"}, fakeProcess{netns: "1", exe: port.exe, comm: "exe"}, Relay{}},
		"docker-proxy inside":                 {web, fakeProcess{netns: "5", exe: "/usr/bin/docker-proxy", comm: "docker-proxy"}, Relay{PID: 20, Name: "docker-proxy"}},
		"docker-proxy outside":                {web, fakeProcess{netns: "1", exe: "/usr/bin/docker-proxy", comm: "docker-proxy"}, Relay{}},
		"slirp4netns":                         {web, fakeProcess{netns: "1", uid: 1000, exe: "/usr/bin/slirp4netns", comm: "slirp4netns", command: []string{"slirp4netns", "-r", "3", "10", "tap0"}}, Relay{}},
		"pasta":                               {web, pasta(1000, "--config-net", "-t", "8080-8080:80-80", "-u", "none", "--netns", path), Relay{PID: 20, Name: "pasta", Local: true}},
		"pasta of a process":                  {web, pasta(1000, "--config-net", "10"), Relay{PID: 20, Name: "pasta", Local: true}},
		"pasta of another process":            {web, pasta(1000, "--config-net", "20"), Relay{}},
		"pasta of another user":               {web, pasta(1001, "-t", "8080", "--netns", path), Relay{}},
		"pasta without ports":                 {web, pasta(1000, "-t", "none", "-u", "none", "--netns", path), Relay{}},
		"pasta without ports, told otherwise": {web, pasta(1000, "--tcp-ports=none", "--udp-ports=none", "10"), Relay{}},
		"pasta, and a container of root's":    {fakeProcess{netns: "5", uidMap: ofRoot, exe: "/bin/web", comm: "web"}, pasta(1000, "-t", "8080", "--netns", path), Relay{}},
		"nobody":                              {web, fakeProcess{netns: "5", exe: "/bin/sh", comm: "sh"}, Relay{}},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			cgroup := filepath.Join(mount, "libpod-web.scope", "container")
			require.NoError(t, os.MkdirAll(cgroup, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("10\n11\n"), 0o644)) // 11 has ended
			host := fakeProcess{netns: "1", exe: "/sbin/init", comm: "init"}
			r := newResolver(t, Options{CgroupRoot: mount, Proc: fakeProc(t, map[int]fakeProcess{1: host, 10: c.member, 20: c.other})})
			got, found := r.LoopbackRelay(filepath.Dir(cgroup))
			if !found {
				got = Relay{}
			}
			require.Equal(t, c.want, got)
		})
	}
}

// The cgroup's limit also counts the traffic that a relay inside the cgroup sends outside.
func TestRelayOfTheCgroupItself(t *testing.T) {
	mount := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(mount, "cgroup.procs"), []byte("10\n20\n"), 0o644))
	r := newResolver(t, Options{CgroupRoot: mount, Proc: fakeProc(t, map[int]fakeProcess{
		1:  {netns: "1", exe: "/sbin/init", comm: "init"},
		10: {netns: "5", exe: "/bin/web", comm: "web"},
		20: {netns: "5", exe: "/usr/libexec/podman/rootlessport", comm: "exe"},
	})})
	_, found := r.LoopbackRelay(mount)
	require.False(t, found)
}
