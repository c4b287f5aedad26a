package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
)

func TestTreeEndsWithItsLastMemberAndSocket(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Tick = time.Minute // only the pidfd can tell
	h := start(t, fake, opts)
	proc := sleeper(t)
	node := h.mustSet(root, pidSubject(proc), up(1e6))
	fake.SetStats(enforce.NodeStats{ID: node.ID})
	end(proc)
	h.eventually("the node goes at once", h.gone(node.ID))
}

func TestTreeOutlivesItsRoot(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)
	node := h.mustSet(root, pidSubject(proc), up(1e6))
	end(proc)
	require.Never(t, h.gone(node.ID), 10*h.opts.Tick, poll, "a child lives")

	// The limit can still be changed by the name that it was set by.
	require.Equal(t, node.ID, h.mustSet(root, pidSubject(proc), up(2e6)).ID)

	fake.SetSockets(enforce.SocketStats{Nodes: []uint32{node.ID}, UnsentBytes: 1})
	fake.SetStats(enforce.NodeStats{ID: node.ID})
	require.Never(t, h.gone(node.ID), 10*h.opts.Tick, poll, "a socket drains")
	fake.SetSockets()
	h.eventually("nothing is left", h.gone(node.ID))
	_, err := h.remove(root, pidSubject(proc))
	testutil.RequireCode(t, api.CodeNotFound, err)
}

func TestLivingProcessKeepsItsNode(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	node := h.mustSet(root, pidSubject(sleeper(t)), up(1e6))
	user := h.mustSet(root, "user:4242", up(1e6))
	fake.SetStats(enforce.NodeStats{ID: node.ID})
	require.Never(t, func() bool { return h.gone(node.ID)() || h.gone(user.ID)() }, 10*h.opts.Tick, poll)
}

func TestUnitFollowsRestarts(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	dir := filepath.Join(h.opts.Identity.CgroupRoot, "system.slice", "web.service")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	node := h.mustSet(root, "unit:web", up(1e6))
	require.Equal(t, "unit:web.service", node.Subject.String())
	before, _ := fake.Spec(node.ID)
	require.Equal(t, enforce.KindCgroup, before.Kind)

	answer, err := h.set(root, "cgroup:system.slice/web.service", up(2e6))
	require.NoError(t, err)
	require.Equal(t, node.ID, answer.Node.ID)
	require.Contains(t, answer.Warnings[0], "same cgroup")

	require.NoError(t, os.Rename(dir, dir+".old")) // so that the inode number is another
	require.Never(t, h.gone(node.ID), 10*h.opts.Tick, poll)
	require.NoError(t, os.Mkdir(dir, 0o755))
	want, err := identity.CgroupID(dir)
	require.NoError(t, err)
	h.eventually("the node moves to the new cgroup", func() bool {
		spec, ok := fake.Spec(node.ID)
		return ok && spec.Subject == want && adminUp(spec) == 2e6
	})
}

func TestRestartAdopts(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	bob := auth.Actor{UID: 4242}
	living, dying := sleeper(t), sleeper(t)
	a := h.mustSet(root, pidSubject(living), up(1e6))
	b := h.mustSet(root, pidSubject(dying), up(1e6))
	c := h.mustSet(bob, "user:4242", up(3e6))
	lost := h.mustSet(root, "user:4243", up(4e6))
	h.cancel()
	require.NoError(t, h.wait())
	require.False(t, fake.IsOpen())
	require.False(t, fake.IsDown(), "limits stay in force")
	require.False(t, h.gone(a.ID)())
	require.NoFileExists(t, opts.SocketPath)

	// The socket of the dead daemon is left, as after kill -9.
	require.NoError(t, os.MkdirAll(opts.RunDir, 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: opts.SocketPath, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	require.FileExists(t, opts.SocketPath)

	end(dying)
	fake.SetStats(enforce.NodeStats{ID: b.ID})
	fake.Drop(lost.ID)
	calls := fake.Calls("SetNode")
	h = start(t, fake, opts)
	require.Equal(t, calls+1, fake.Calls("SetNode"), "only what was lost is set")
	_, ok := fake.Spec(lost.ID)
	require.True(t, ok)
	h.eventually("a process that ended meanwhile goes", h.gone(b.ID))
	require.Equal(t, a.ID, h.mustSet(root, pidSubject(living), up(7e6)).ID)
	nodes, err := h.nodesFor("user:4242")
	require.NoError(t, err)
	require.Equal(t, c.ID, nodes[0].ID)
	require.Equal(t, "4242", nodes[0].Limits[0].Owner)
	require.NotContains(t, []uint32{a.ID, b.ID, c.ID, lost.ID}, h.mustSet(root, "user:4244", up(1)).ID, "ids are not used again at once")
}

// A limit for the time until a reboot outlives the daemon, and ends with a reboot. Each owner's choice applies to their
// own limits only.
func TestPersist(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.AtBoot = func() string { return "enable it" }
	h := start(t, fake, opts)
	bob := auth.Actor{UID: 4242}
	h.mustSet(root, "host", api.Wish{UpBytesPerSec: ptr[uint64](1e6), Persist: ptr(false)})
	h.mustSet(root, "user:4242", up(2e6))
	h.mustSet(bob, "user:4242", api.Wish{UpBytesPerSec: ptr[uint64](1e6), Persist: ptr(false)})
	answer, err := h.set(root, "user:4243", api.Wish{UpBytesPerSec: ptr[uint64](1e6), Persist: ptr(true)})
	require.NoError(t, err)
	require.Contains(t, strings.Join(answer.Warnings, " "), "enable it")
	_, err = h.set(root, pidSubject(sleeper(t)), api.Wish{UpBytesPerSec: ptr[uint64](1e6), Persist: ptr(true)})
	testutil.RequireCode(t, api.CodeBadRequest, err)
	_, err = h.set(root, "user:4244", api.Wish{Persist: ptr(true)})
	testutil.RequireCode(t, api.CodeBadRequest, err)
	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	limits := func() (list []string) {
		nodes, err := h.Nodes(context.Background(), root)
		require.NoError(t, err)
		for _, n := range nodes.Nodes {
			for _, l := range n.Limits {
				list = append(list, fmt.Sprint(n.Subject, " ", l.Owner, " ", l.UntilReboot))
			}
		}
		return list
	}
	require.ElementsMatch(t, []string{"host admin true", "user:4242 admin false", "user:4242 4242 true", "user:4243 admin false"}, limits())
	require.NoError(t, h.stop())
	data, err := os.ReadFile(h.file.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.file.Path(), []byte(strings.Replace(string(data), h.boot, "another", 1)), 0o600))
	*fake = enforcetest.Kernel{}
	h = start(t, fake, opts)
	require.ElementsMatch(t, []string{"user:4242 admin false", "user:4243 admin false"}, limits())
	require.NoError(t, h.stop())

	opts.OnDemand = true
	h = start(t, fake, opts)
	_, err = h.set(root, "host", api.Wish{UpBytesPerSec: ptr[uint64](1e6), Persist: ptr(true)})
	testutil.RequireCode(t, api.CodeConflict, err)
}

func TestBootDropsProcesses(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	dir := filepath.Join(opts.Identity.CgroupRoot, "x")
	require.NoError(t, os.Mkdir(dir, 0o755))
	h.mustSet(root, pidSubject(sleeper(t)), up(1e6))
	h.mustSet(root, "user:4242", up(2e6))
	h.mustSet(root, "host", up(3e6))
	cgroup := h.mustSet(root, "cgroup:x", up(4e6))
	_ = h.stop()

	path := filepath.Join(opts.StateDir, desired.FileName)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), h.boot, "another", 1)), 0o600))
	require.NoError(t, os.Remove(dir))
	fake = &enforcetest.Kernel{}
	opts.OpenKernel = fake.Open
	h = start(t, fake, opts)
	specs, err := fake.Nodes()
	require.NoError(t, err)
	require.Len(t, specs, 2, "user and host")
	require.Equal(t, 3, h.count(), "the cgroup is waited for")
	require.NoError(t, os.Mkdir(dir, 0o755))
	h.eventually("the cgroup's limit holds once the cgroup is there", func() bool {
		spec, ok := fake.Spec(cgroup.ID)
		return ok && adminUp(spec) == 4e6
	})
}

func TestStrangersAreAdopted(t *testing.T) {
	fake := &enforcetest.Kernel{}
	spec := enforce.NodeSpec{ID: 7, Kind: enforce.KindUser, Subject: 4242, Weight: 100}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up] = enforce.Ceiling{BytesPerSec: 9}
	fake.Put(spec)
	fake.Put(enforce.NodeSpec{ID: 8, Kind: 77, Weight: 100})
	h := start(t, fake, testOptions(t, fake))
	nodes, err := h.nodesFor("user:4242")
	require.NoError(t, err)
	require.EqualValues(t, 7, nodes[0].ID)
	require.Equal(t, "admin", nodes[0].Limits[0].Owner)
	require.Zero(t, fake.Calls("SetNode"))
	require.Never(t, h.gone(8), 5*h.opts.Tick, poll, "what is not known is left alone")
}

func TestKernelIsPutRight(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	node := h.mustSet(root, "host", up(1e6))
	fake.Drop(node.ID)
	h.eventually("what was lost is set again", func() bool { return !h.gone(node.ID)() })
	fake.Put(enforce.NodeSpec{ID: 99, Kind: enforce.KindUser, Subject: 1, Weight: 100})
	h.eventually("what nobody wants is lifted", h.gone(99))
}

// A node that fits only when others have gone is set in the same comparison. One whose id another subject's node has
// takes its place.
func TestKernelIsPutRightAtOnce(t *testing.T) {
	d := newIncrements(t)
	defer d.stopWatching()
	set := func(subject string) uint32 {
		s, err := api.ParseSubject(subject)
		require.NoError(t, err)
		answer, err := d.Set(context.Background(), root, api.SetRequest{Subject: s, Wish: up(1e6)})
		require.NoError(t, err)
		return answer.Node.ID
	}
	user, part := set("user:4242"), set("to:10.0.0.0/8")
	stranger := enforce.NodeSpec{Kind: enforce.KindUser, Subject: 9999, Weight: 100}
	for _, id := range []uint32{user, part} {
		d.fake.SetRoom(2)
		d.fake.Drop(id)
		stranger.ID = 99
		d.fake.Put(stranger)
		d.look(true)
		spec, ok := d.fake.Spec(id)
		require.True(t, ok)
		require.EqualValues(t, 1e6, adminUp(spec))

		stranger.ID = id
		for range 2 { // the same one again is no setting of the kernel's own
			d.fake.Put(stranger)
			d.look(true)
			spec, _ = d.fake.Spec(id)
			require.EqualValues(t, 1e6, adminUp(spec))
			require.EqualValues(t, part, d.fake.Destinations().Uses[0].Node)
		}
	}
	list, err := d.fake.Nodes()
	require.NoError(t, err)
	require.Len(t, list, 2)
}

func TestStateThatCannotBeUsed(t *testing.T) {
	for _, name := range stateFiles {
		const content = `{"version":99,"surprise":1}` // from a newer netnice
		t.Run(name, func(t *testing.T) {
			fake := &enforcetest.Kernel{}
			opts := testOptions(t, fake)
			path := filepath.Join(opts.StateDir, name)
			require.NoError(t, os.MkdirAll(opts.StateDir, 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			e := testutil.RequireFault(t, api.CodeInternal, Run(context.Background(), opts))
			require.Contains(t, e.Message, path)
			require.Contains(t, e.Hint, path)
			require.False(t, fake.IsOpen())
			require.NoDirExists(t, opts.RunDir)
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, string(got))
		})
	}
}

func TestSecondDaemon(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	e := testutil.RequireFault(t, api.CodeConflict, Run(context.Background(), h.opts))
	require.Contains(t, e.Message, "runs already")
	require.Equal(t, 1, fake.Calls("Open"))
	h.mustSet(root, "host", up(1))
}

func TestSocketInTheWay(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	require.NoError(t, os.MkdirAll(opts.RunDir, 0o755))
	require.NoError(t, os.WriteFile(opts.SocketPath, []byte("precious"), 0o600))
	testutil.RequireCode(t, api.CodeInternal, Run(context.Background(), opts))
	require.FileExists(t, opts.SocketPath)
	require.False(t, fake.IsOpen())
}

func TestKernelCannot(t *testing.T) {
	fake := &enforcetest.Kernel{}
	fake.Fail("Open", enforce.ErrNotSupported)
	err := Run(context.Background(), testOptions(t, fake))
	require.ErrorIs(t, err, enforce.ErrNotSupported)
}

func TestDown(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	h.mustSet(root, "host", up(1))
	h.mustSet(root, pidSubject(sleeper(t)), up(1))
	fake.Fail("Down", errors.New("busy"))
	require.Error(t, h.Down(context.Background(), root))
	require.Equal(t, 2, h.count(), "a failure changes nothing")
	fake.Fail("Down", nil)
	require.NoError(t, h.Down(context.Background(), root))
	_, err := h.set(root, "host", up(1))
	testutil.RequireCode(t, api.CodeConflict, err)
	require.NoError(t, h.wait())
	require.False(t, fake.IsOpen())
	require.NoDirExists(t, opts.RunDir)
	require.NoDirExists(t, opts.StateDir)
}

func TestMaintain(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	time.Sleep(5 * opts.Tick)
	require.Zero(t, fake.Calls("Maintain"), "nothing to look after")
	h.mustSet(root, "host", up(1))
	h.eventually("every tick", func() bool { return fake.Calls("Maintain") >= 2 })

	opts = testOptions(t, fake)
	opts.Tick = time.Minute
	_ = h.stop()
	h = start(t, fake, opts)
	calls := fake.Calls("Maintain")
	fake.Event()
	h.eventually("at once", func() bool { return fake.Calls("Maintain") == calls+1 })
}

// TestOverTheSocket tests the whole path of a request, and the file modes.
func TestOverTheSocket(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	st, err := os.Stat(h.opts.SocketPath)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), st.Mode().Perm())
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", h.opts.SocketPath)
		},
	}}
	call := func(method, path, body string, into any) int {
		req, err := http.NewRequest(method, "http://netnice"+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, into), "%s", data)
		return resp.StatusCode
	}
	var status api.Status
	require.Equal(t, 200, call("GET", "/v1/status", "", &status))
	require.Equal(t, os.Getpid(), status.PID)
	require.Equal(t, "test", status.Release)
	require.Equal(t, []api.Program{{Name: "nn_sockops", Attached: true}}, status.Programs)

	// The test may run as any user, so it limits a process of its own.
	var set api.SetResponse
	subject := `{"kind":"pid","id":"` + strings.TrimPrefix(pidSubject(sleeper(t)), "pid:") + `"}`
	require.Equal(t, 200, call("PUT", "/v1/limits", `{"subject":`+subject+`,"wish":{"up_bytes_per_sec":1000}}`, &set))
	require.True(t, set.Changed)
	var list api.NodeList
	require.Equal(t, 200, call("GET", "/v1/nodes", "", &list))
	require.Len(t, list.Nodes, 1)
	require.Equal(t, 200, call("DELETE", "/v1/limits?subject="+list.Nodes[0].Subject.String(), "", &set))
	var fault api.Error
	require.Equal(t, 404, call("GET", "/v1/nodes?subject=host", "", &fault))
	require.Equal(t, api.CodeNoLimit, fault.Code)
	if os.Geteuid() == 0 {
		require.Equal(t, 200, call("POST", "/v1/down", "", &struct{}{}))
		require.NoError(t, h.wait())
	}
}
