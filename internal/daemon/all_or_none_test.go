package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/source/prefixlists"
	"github.com/netnice/netnice/internal/testutil"
)

// A request changes all that it names, or nothing. Each test here lets a late step fail, or only tries a request.

// refusingKernel refuses single calls.
type refusingKernel struct {
	*enforcetest.Kernel
	mu     sync.Mutex
	call   string // the method that refuses, "" = none
	number uint64 // the node, or the process, that it refuses
	count  map[string]int
	child  map[int]int // a process that joins what its parent joins
}

// tries returns how often a method has refused.
func (k *refusingKernel) tries(call string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count[call]
}

var errRefused = errors.New("refused by the test")

func (k *refusingKernel) refuse(call string, number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.call, k.number = call, number
}

func (k *refusingKernel) refused(call string, number uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.call == call && k.number == number {
		if k.count == nil {
			k.count = make(map[string]int)
		}
		k.count[call]++
		return errRefused
	}
	return nil
}

func (k *refusingKernel) SetNode(s enforce.NodeSpec) error {
	if err := k.refused("SetNode", s.Subject); err != nil {
		return err
	}
	return k.Kernel.SetNode(s)
}

func (k *refusingKernel) RemoveNode(id uint32) error {
	if err := k.refused("RemoveNode", uint64(id)); err != nil {
		return err
	}
	return k.Kernel.RemoveNode(id)
}

// SetDestinations refuses an assignment with that number of uses.
func (k *refusingKernel) SetDestinations(to enforce.Destinations) error {
	if err := k.refused("SetDestinations", uint64(len(to.Uses))); err != nil {
		return err
	}
	return k.Kernel.SetDestinations(to)
}

func (k *refusingKernel) Join(id uint32, pid int) error {
	if err := k.refused("Join", uint64(pid)); err != nil {
		return err
	}
	k.mu.Lock()
	child := k.child[pid]
	k.mu.Unlock()
	if err := k.Kernel.Join(id, pid); err != nil || child == 0 || slices.Contains(k.Trees(child), id) {
		return err
	}
	return k.Kernel.Join(id, child)
}

func (k *refusingKernel) Leave(id uint32) error {
	if err := k.refused("Leave", uint64(id)); err != nil {
		return err
	}
	return k.Kernel.Leave(id)
}

// startRefusing starts a daemon whose kernel refuses calls. Unless a test changes that, it has no tick, at which it would
// write the file again.
func startRefusing(t *testing.T, change ...func(*Options)) (*harness, *refusingKernel) {
	k := &refusingKernel{Kernel: new(enforcetest.Kernel)}
	opts := testOptions(t, k.Kernel)
	opts.Tick = time.Hour
	for _, f := range change {
		f(&opts)
	}
	opts.OpenKernel = func() (enforce.Kernel, error) {
		_, err := k.Open()
		return k, err
	}
	return start(t, k.Kernel, opts), k
}

func ticking(o *Options) { o.Tick = 20 * time.Millisecond }

// everything is all that a request may change: nodes with their limits and members, in the kernel and in the file.
func (h *harness) everything() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes.Sorted() {
		spec, _ := h.fake.Spec(n.id)
		spec.ID = 0 // it is the same node
		list = append(list, fmt.Sprintf("%d %s %v %q under %d: %+v", n.id, n.res.Subject, n.Requested, n.group, n.holds, spec))
		if pid, _ := n.rootProcess(); pid != 0 {
			trees := slices.Sorted(slices.Values(h.fake.Trees(pid)))
			list = append(list, fmt.Sprint(pid, " is in ", slices.Compact(trees)))
		}
	}
	text, _ := os.ReadFile(h.file.Path())
	for name := range h.names.Shown() {
		list = append(list, "name "+name)
	}
	for key, prefixes := range h.lists.All() {
		list = append(list, fmt.Sprint(key, prefixes))
	}
	slices.Sort(list)
	return append(list, fmt.Sprint(h.fake.Destinations()), string(text))
}

// inForce is everything but the file, which may say the same in other lines.
func (h *harness) inForce() []string {
	all := h.everything()
	return all[:len(all)-1]
}

// failsWhole checks that a request fails, and that everything is as before.
func (h *harness) failsWhole(request func() error) {
	h.t.Helper()
	heard := h.hear(root)
	before := h.everything()
	require.Error(h.t, request())
	require.Equal(h.t, before, h.everything())
	require.Empty(h.t, h.events(heard), "no event")
}

// events returns the types of all events until now, without those that tell of no limit.
func (h *harness) events(heard *heardBy) []string {
	h.t.Helper()
	const last = "last"
	h.observe.Tell(observe.UsersOnly([2]uint32{}), api.Event{Type: last})
	h.eventually("the last event", func() bool { return slices.Contains(heard.types(), last) })
	return slices.DeleteFunc(heard.types(), func(what string) bool { return !strings.HasPrefix(what, "limit_") })
}

func (h *harness) idOf(subject string) uint64 { return uint64(h.scopeFor(subject)) }

func TestGroupIsTakenInWholeOrNot(t *testing.T) {
	h, k := startRefusing(t)
	a, b, c := sleeper(t), sleeper(t), sleeper(t)
	k.refuse("Join", uint64(c.Process.Pid))
	h.failsWhole(func() error {
		_, err := h.group(root, "g", up(1e6), memberOf(b, 200), memberOf(c, 0))
		return err
	})
	_, err := h.group(root, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)
	h.mustSet(root, pidSubject(b), up(1e5))
	h.failsWhole(func() error {
		_, err := h.group(root, "g", up(2e6), memberOf(a, 300), memberOf(b, 200), memberOf(c, 0))
		return err
	})
	k.refuse("SetNode", uint64(b.Process.Pid))
	h.failsWhole(func() error {
		_, err := h.group(root, "g", up(2e6), memberOf(b, 200))
		return err
	})
	k.refuse("", 0)
	h.failsWhole(func() error { // it would lift the group that the process is to join
		_, err := h.group(root, "g", up(0), memberOf(b, 0))
		return err
	})
}

// A process without a node of its own leaves the group that it has just joined, and what it was in before holds. Members
// among its descendants stay in the group.
func TestNewMemberLeavesAgain(t *testing.T) {
	h, k := startRefusing(t)
	a, b, c := sleeper(t), sleeper(t), sleeper(t)
	outer := h.mustSet(root, pidSubject(sleeper(t)), up(5e6)).ID
	for _, p := range []*exec.Cmd{a, b, c} {
		k.SetTrees(p.Process.Pid, outer)
	}
	_, err := h.group(root, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)
	group := uint32(h.idOf("group:g"))
	require.Contains(t, k.Trees(a.Process.Pid), group)
	k.mu.Lock()
	k.child = map[int]int{b.Process.Pid: a.Process.Pid}
	k.mu.Unlock()
	for _, call := range []string{"SetNode", "Join"} {
		k.refuse(call, uint64(c.Process.Pid))
		h.failsWhole(func() error {
			_, err := h.group(root, "g", up(2e6), memberOf(b, 200), memberOf(c, 200))
			return err
		})
		for _, p := range []*exec.Cmd{b, c} {
			require.Equal(t, []uint32{outer}, k.Trees(p.Process.Pid))
		}
		require.Equal(t, 3, len(must(k.Nodes())), "no other node is left")
	}
}

// A process that the kernel keeps in a group is named, with the commands that take it out.
func TestNewMemberStays(t *testing.T) {
	h, k := startRefusing(t)
	a, b := sleeper(t), sleeper(t)
	_, err := h.group(root, "g", up(1e6), memberOf(a, 0))
	require.NoError(t, err)
	k.refuse("SetNode", uint64(b.Process.Pid))
	k.Fail("Leave", errors.New("no undo"))
	_, err = h.group(root, "g", api.Wish{}, memberOf(b, 200))
	answer := testutil.RequireFault(t, api.CodeInternal, err)
	require.Equal(t, []string{fmt.Sprintf("process %d stays in group:g: no undo", b.Process.Pid)}, answer.NotUndone)
	require.Contains(t, answer.Hint, fmt.Sprintf("netnice fair --leave %d", b.Process.Pid))
	k.refuse("", 0)
	k.Fail("Leave", nil)
	_, err = h.group(root, "g", api.Wish{}, memberOf(b, 0))
	require.NoError(t, err)
	_, err = h.leave(root, "g", b.Process.Pid)
	require.NoError(t, err)
	require.Empty(t, k.Trees(b.Process.Pid))
}

func TestGroupIsLeftWholeOrNot(t *testing.T) {
	h, k := startRefusing(t)
	a, b := sleeper(t), sleeper(t)
	h.mustSet(root, pidSubject(a), up(1e5))
	_, err := h.group(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	k.refuse("Leave", h.idOf(pidSubject(b)))
	h.failsWhole(func() error {
		_, err := h.leave(root, "g", a.Process.Pid, b.Process.Pid)
		return err
	})
}

func TestGroupIsLiftedWholeOrNot(t *testing.T) {
	h, k := startRefusing(t)
	a, b := sleeper(t), sleeper(t)
	h.mustSet(root, pidSubject(a), up(1e5))
	_, err := h.group(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	for _, subject := range []string{pidSubject(b), "group:g"} {
		k.refuse("RemoveNode", h.idOf(subject))
		h.failsWhole(func() error {
			_, err := h.remove(root, "group:g")
			return err
		})
	}
}

// The answer says which steps could not be undone, and what helps.
func TestRefusedRequestThatIsNotUndone(t *testing.T) {
	h, k := startRefusing(t, ticking)
	k.refuse("SetDestinations", 1)
	k.Fail("RemoveNode", errors.New("no undo"))
	_, err := h.set(root, "to:192.0.2.7", up(1e6))
	answer := testutil.RequireFault(t, api.CodeInternal, err)
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, []string{"lift to:192.0.2.7: no undo"}, answer.NotUndone)
	require.Contains(t, answer.Message, "; not all of it was undone: lift to:192.0.2.7: no undo")
	require.Contains(t, answer.Hint, "netnice ls")
	require.Zero(t, h.count())
	left := must(k.Nodes())
	require.Len(t, left, 1)
	k.Fail("RemoveNode", nil)
	k.refuse("", 0)
	h.eventually("the daemon lifts it, though it has no limit at all", h.gone(left[0].ID))

	a, b := sleeper(t), sleeper(t)
	_, err = h.group(root, "g", up(1e6), memberOf(a, 0), memberOf(b, 0))
	require.NoError(t, err)
	before := h.inForce()
	k.refuse("Leave", h.idOf(pidSubject(b)))
	k.Fail("Join", errors.New("no undo"))
	_, err = h.leave(root, "g", a.Process.Pid, b.Process.Pid)
	answer = testutil.RequireFault(t, api.CodeInternal, err)
	require.Equal(t, []string{fmt.Sprintf("process %d is out of group:g: no undo", a.Process.Pid)}, answer.NotUndone)
	require.Equal(t, fmt.Sprintf("netnice fair --group g %d", a.Process.Pid), answer.Hint)
	k.Fail("Join", nil)
	k.refuse("", 0)
	require.NotEqual(t, before, h.inForce())
	_, err = h.group(root, "g", api.Wish{}, memberOf(a, 0))
	require.NoError(t, err)
	require.Equal(t, before, h.inForce(), "the command brings it back")
}

// The members that a request adds count together.
func TestGroupWithinTheQuota(t *testing.T) {
	testutil.RequireRoot(t) // its processes are a user's
	h, _ := startRefusing(t)
	bob := auth.Actor{UID: 4242}
	h.mu.Lock()
	for range auth.MaxNodesPerUser - 2 {
		id := h.freeID()
		n := &node{id: id, userUID: bob.UID, Wanted: plan.Wanted{Requested: limit.Owners{enforce.OwnerUser: {Up: 1}}}}
		n.res.Kind, n.res.Key = enforce.KindUser, uint64(1e6+id)
		h.keepNode(n)
	}
	h.mu.Unlock()
	_, err := h.group(bob, "g", up(1e6), memberOf(sleeperAs(t, bob.UID), 0), memberOf(sleeperAs(t, bob.UID), 0))
	testutil.RequireCode(t, api.CodeConflict, err)
	_, err = h.group(bob, "g", up(1e6), memberOf(sleeperAs(t, bob.UID), 0))
	require.NoError(t, err)
}

func TestDestinationIsLiftedWholeOrNot(t *testing.T) {
	h, k := startRefusing(t)
	bob := auth.Actor{UID: 12345}
	const to = "to:10.0.0.0/8@user:12345"
	h.mustSet(bob, "to:10.0.0.0/8", up(1e6))
	own := h.idOf(to)
	h.mustSet(root, to, up(2e6))
	h.mu.Lock()
	var admins uint64
	for _, n := range h.nodes.WithSubject(api.Subject{Kind: api.KindTo, ID: strings.TrimPrefix(to, "to:")}) {
		if !n.IsOnlyUsers() {
			admins = uint64(n.id)
		}
	}
	h.mu.Unlock()
	for _, id := range []uint64{own, admins, h.idOf("user:12345")} {
		k.refuse("RemoveNode", id)
		h.failsWhole(func() error {
			_, err := h.remove(root, to)
			return err
		})
	}
	h.failsWhole(func() error {
		_, err := h.set(root, to, up(0))
		return err
	})
}

// A destination's limit whose place the kernel refuses while a request is taken back gets it at a later tick. The log says
// so once.
func TestDestinationIsAssignedAgain(t *testing.T) {
	var log testutil.Log
	h, k := startRefusing(t, ticking, func(o *Options) { o.Logger = log.Logger(t) })
	h.mustSet(root, "to:192.0.2.7", up(1e6))
	before := h.inForce()
	k.Fail("RemoveNode", errors.New("not now"))
	k.refuse("SetDestinations", 1)
	_, err := h.remove(root, "to:192.0.2.7")
	require.Len(t, testutil.RequireFault(t, api.CodeInternal, err).NotUndone, 1)
	require.Empty(t, h.fake.Destinations().Uses, "the limit holds for nothing")
	tries := k.tries("SetDestinations")
	h.eventually("the daemon tries again", func() bool { return k.tries("SetDestinations") > tries+3 })
	require.Equal(t, 1, log.Count(errRefused.Error()))
	k.refuse("", 0)
	h.eventually("it holds again", func() bool { return slices.Equal(before, h.inForce()) })
}

func TestPrefixesAndRateAreSetTogether(t *testing.T) {
	h, k := startRefusing(t)
	set := func(w api.Wish, dryRun bool, prefixes ...string) error {
		_, err := h.Set(t.Context(), root, api.SetRequest{
			Subject: api.Subject{Kind: api.KindTo, ID: "file:/lan.txt@user:root"}, Wish: w, Prefixes: prefixes, DryRun: dryRun,
		})
		return err
	}
	require.NoError(t, set(up(1e6), false, "10.0.0.0/8"))
	k.Fail("SetDestinations", errRefused)
	h.failsWhole(func() error { return set(up(2e6), false, "192.0.2.0/24") })
	k.Fail("SetDestinations", nil)

	// A dry run writes nothing, not even the same again.
	list := must(filepath.Glob(filepath.Join(h.opts.StateDir, prefixlists.Folder, "*")))[0]
	before, info := h.everything(), must(os.Stat(list))
	require.NoError(t, set(up(2e6), true, "192.0.2.0/24"))
	require.Equal(t, before, h.everything())
	require.True(t, os.SameFile(info, must(os.Stat(list))))
}

// A dry run, and a request that is refused, leave no name behind.
func TestNamesOfRefusedRequests(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.LookupNames = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil
	}
	h := start(t, fake, opts)
	before := h.everything()
	s := api.Subject{Kind: api.KindTo, ID: "example.com"}
	answer, err := h.Set(t.Context(), root, api.SetRequest{Subject: s, Wish: up(1e6), DryRun: true})
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.7"}, answer.Node.Names[0].Addresses)
	require.Equal(t, before, h.everything())
	fake.Fail("SetNode", errRefused)
	h.failsWhole(func() error {
		_, err := h.Set(t.Context(), root, api.SetRequest{Subject: s, Wish: up(1e6)})
		return err
	})
}

// slowSystemd starts a scope when the test lets it, and moves no process.
type slowSystemd struct {
	identity.SystemBus
	asked, goOn chan struct{}
}

func (slowSystemd) Running() bool { return true }

func (s slowSystemd) StartScope(context.Context, string, string, []int, ...sdbus.Property) error {
	s.asked <- struct{}{}
	<-s.goOn
	return unix.EIO
}

// A process is moved to a scope only if nothing else refuses the request, and no other request waits for systemd.
func TestScopeComesLastAndWithoutTheLock(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	systemd := slowSystemd{asked: make(chan struct{}, 9), goOn: make(chan struct{})}
	opts.Identity.Systemd = systemd
	h := start(t, fake, opts)
	h.mustSet(root, "host", up(1e6))
	s := must(api.ParseSubject(pidSubject(sleeper(t))))
	scope := func(w api.Wish) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := h.Set(context.Background(), root, api.SetRequest{Subject: s, Wish: w, Scope: true})
			done <- err
		}()
		return done
	}
	refused := scope(api.Wish{UpBytesPerSec: ptr[uint64](1e6), MinBytesPerSec: ptr[uint64](2e6)})
	select {
	case err := <-refused:
		testutil.RequireCode(t, api.CodeConflict, err)
	case <-systemd.asked:
		systemd.goOn <- struct{}{}
		require.Error(t, <-refused)
		t.Error("it was moved before it was refused")
	}
	slow := scope(up(1e6))
	<-systemd.asked
	other := make(chan error, 1)
	go func() {
		_, err := h.set(root, "user:4242", up(1e6))
		other <- err
	}()
	select {
	case err := <-other:
		require.NoError(t, err)
	case <-time.After(time.Second):
		t.Error("it waits for systemd")
	}
	systemd.goOn <- struct{}{}
	require.ErrorIs(t, <-slow, unix.EIO)
}

// A scope is a new limit beside that of its process. The next request finds it, and a refused one moves the process
// back. The folders are no cgroups here, which is why they stay.
func TestScopeInPlainFolders(t *testing.T) {
	h, k := startRefusing(t)
	proc := sleeper(t)
	folder := filepath.Join(h.opts.Identity.CgroupRoot, "netnice", fmt.Sprint("run-", proc.Process.Pid))
	origin := must(h.resolver.ProcessCgroup(proc.Process.Pid))
	require.NoError(t, os.MkdirAll(filepath.Join(h.opts.Identity.CgroupRoot, origin), 0o755))
	own := h.mustSet(root, pidSubject(proc), up(1e5))
	movedTo := func(dir string) {
		t.Helper()
		require.Equal(t, fmt.Sprint(proc.Process.Pid), string(must(os.ReadFile(filepath.Join(dir, "cgroup.procs")))))
	}
	k.Fail("SetNode", errRefused)
	h.failsWhole(func() error {
		_, err := h.scope(root, pidSubject(proc), false)
		return err
	})
	movedTo(filepath.Join(h.opts.Identity.CgroupRoot, origin))
	k.Fail("SetNode", nil)

	dry, err := h.scope(root, pidSubject(proc), true)
	require.NoError(t, err)
	require.Equal(t, 1, h.count())
	require.Equal(t, own.ID, dry.Node.ID, "the process represents its scope")
	answer, err := h.scope(root, pidSubject(proc), false)
	require.NoError(t, err)
	movedTo(folder)
	require.Equal(t, 2, h.count())
	spec, _ := k.Spec(answer.Node.ID)
	require.Equal(t, enforce.KindCgroup, spec.Kind)
	require.EqualValues(t, 1e6, adminUp(spec))
	again, err := h.scope(root, pidSubject(proc), false)
	require.NoError(t, err)
	require.False(t, again.Changed)
	require.Equal(t, answer.Node.ID, again.Node.ID)
}

// A guarantee for a scope has to fit where the scope will be, and nowhere else. A dry run says the same.
func TestGuaranteeOfAScopeFitsWhereItWillBe(t *testing.T) {
	h, k := startRefusing(t)
	proc := sleeper(t)
	cgroups := h.opts.Identity.CgroupRoot
	origin := must(h.resolver.ProcessCgroup(proc.Process.Pid))
	folder := filepath.Join(cgroups, "netnice")
	for _, dir := range []string{filepath.Join(cgroups, origin), folder} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	scope := func(dryRun bool) (api.SetResponse, error) {
		return h.Set(t.Context(), root, api.SetRequest{
			Subject: must(api.ParseSubject(pidSubject(proc))), Wish: atLeast(2e6), Scope: true, DryRun: dryRun,
		})
	}
	h.mustSet(root, "host", up(10e6))
	h.mustSet(root, "cgroup:/netnice", up(1e6))
	for _, dryRun := range []bool{true, false} {
		_, err := scope(dryRun)
		require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "cgroup:/netnice", "where it will be")
	}
	require.NoFileExists(t, filepath.Join(folder, fmt.Sprint("run-", proc.Process.Pid), "cgroup.procs"), "it was not moved")
	_, err := h.remove(root, "cgroup:/netnice")
	require.NoError(t, err)
	h.mustSet(root, pidSubject(proc), up(1e5))
	if origin != "/" { // the root of the cgroups is around every place
		h.mustSet(root, "cgroup:"+origin, up(1e6))
	}
	outer := h.mustSet(root, pidSubject(sleeper(t)), up(1e6)).ID
	k.SetTrees(proc.Process.Pid, outer)
	for _, dryRun := range []bool{true, false} {
		answer, err := scope(dryRun)
		require.NoError(t, err, "it leaves what is around it now")
		require.Empty(t, answer.Warnings)
	}
}

// The rate of a limit that follows a path is as before if the kernel refuses a new one.
func TestRefusedRateOfAPath(t *testing.T) {
	h, k := startRefusing(t)
	node := h.mustSet(root, "to:192.0.2.7", up(1e6))
	k.Fail("SetNode", errRefused)
	h.failsWhole(func() error { return adaptationHost{h.Daemon}.SetRate(node.ID, node.Subject, 2e6, true) })
}

// A limit follows its unit to the next cgroup with a request, unless the request is refused.
func TestMovedWithARequest(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.Tick = time.Hour
	h := start(t, fake, opts)
	dir := filepath.Join(opts.Identity.CgroupRoot, "system.slice", "web.service")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	h.mustSet(root, "host", up(1e6))
	node := h.mustSet(root, "unit:web", up(1e5))
	require.NoError(t, os.Rename(dir, dir+".former")) // its inode stays in use
	require.NoError(t, os.Mkdir(dir, 0o755))
	h.failsWhole(func() error {
		_, err := h.set(root, "unit:web", api.Wish{MinBytesPerSec: ptr[uint64](2e6)})
		return err
	})
	answer, err := h.set(root, "unit:web", up(1e5))
	require.NoError(t, err)
	require.False(t, answer.Changed)
	spec, _ := fake.Spec(node.ID)
	require.Equal(t, must(identity.CgroupID(dir)), spec.Subject)
}

// A rule's limit for all together is not there before its first process is in it.
func TestRuleForAllIsJoinedOrNot(t *testing.T) {
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'\nshare = 'all'"), nil)
	c.fake.Fail("Join", errRefused)
	heard := c.hear(root)
	c.started(a)
	require.Zero(t, c.count())
	require.Empty(t, c.events(heard))
	c.fake.Fail("Join", nil)
	c.started(a)
	require.Equal(t, 1, c.count())
}
