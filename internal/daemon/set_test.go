package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/testutil"
)

func TestSetChangeLift(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)

	node := h.mustSet(root, pidSubject(proc), up(1e6))
	require.Equal(t, "sleep", node.Name)
	require.Equal(t, proc.Process.Pid, node.PID)
	require.Equal(t, []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 1e6, BurstNS: 10e6, Enforced: true}}, node.Limits)
	spec, ok := fake.Spec(node.ID)
	require.True(t, ok)
	require.Equal(t, enforce.KindTree, spec.Kind)
	require.EqualValues(t, proc.Process.Pid, spec.Subject)
	require.EqualValues(t, 100, spec.Weight)
	require.NotZero(t, spec.StartBoottimeNS)

	changed := h.mustSet(root, pidSubject(proc), up(2e6))
	require.Equal(t, node.ID, changed.ID, "a node keeps its id")
	spec, _ = fake.Spec(node.ID)
	require.EqualValues(t, 2e6, adminUp(spec))

	calls := fake.Calls("SetNode")
	answer, err := h.set(root, pidSubject(proc), up(2e6))
	require.NoError(t, err)
	require.False(t, answer.Changed)
	require.Equal(t, calls, fake.Calls("SetNode"), "what holds already is not set again")

	answer, err = h.set(root, pidSubject(proc), up(0))
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.Nil(t, answer.Node)
	require.True(t, h.gone(node.ID)())

	answer, err = h.set(root, pidSubject(proc), up(0))
	require.NoError(t, err)
	require.False(t, answer.Changed)
	require.NotEmpty(t, answer.Warnings)
}

// The answer says that a rate has no effect.
func TestOverruledRateIsSaid(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	me := auth.Actor{UID: uint32(os.Getuid())}
	if me.UID == 0 {
		me.UID = 4711
	}
	subject := fmt.Sprintf("user:%d", me.UID)
	h.mustSet(root, subject, up(1e6))
	answer, err := h.set(me, subject, up(5e6))
	require.NoError(t, err)
	require.Equal(t, []string{"the administrator's limit of 1 MB/s up is lower, and holds"}, answer.Warnings)
	answer, err = h.set(me, subject, up(5e5))
	require.NoError(t, err)
	require.Empty(t, answer.Warnings)
	answer, err = h.set(root, subject, up(2e6))
	require.NoError(t, err)
	require.Equal(t, []string{"the user's own limit of 500 kB/s up is lower, and holds"}, answer.Warnings)
}

func TestTotal(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	answer, err := h.set(root, "host", api.Wish{TotalBytesPerSec: ptr(uint64(5e6))})
	require.NoError(t, err)
	require.Empty(t, answer.Warnings)
	require.True(t, answer.Node.Limits[0].Enforced)
	spec, _ := fake.Spec(answer.Node.ID)
	require.EqualValues(t, 5e6, spec.Ceilings[enforce.OwnerAdmin][enforce.Total].BytesPerSec)
	require.Equal(t, enforce.KindHost, spec.Kind)
	require.False(t, spec.Loopback)
	require.False(t, spec.MeterOff)

	// Received traffic counts as long as the total of one owner counts it.
	meter := func(by auth.Actor, on bool) enforce.NodeSpec {
		answer, err := h.set(by, "host", api.Wish{TotalBytesPerSec: ptr(uint64(5e6)), InputMeter: &on})
		require.NoError(t, err)
		require.Equal(t, !on, answer.Node.MeterOff)
		spec, _ := fake.Spec(answer.Node.ID)
		return spec
	}
	require.True(t, meter(root, false).MeterOff)
	require.False(t, meter(root, true).MeterOff)

	node := h.mustSet(root, "pid:1", up(1e6))
	require.Equal(t, answer.Node.ID, node.ID, "process 1 is the host")
}

func TestRefusals(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	user := auth.Actor{UID: 4242}

	for _, c := range []struct {
		name, subject string
		by            auth.Actor
		wish          api.Wish
		code, says    string
	}{
		{"dead process", fmt.Sprint("pid:", dead.Process.Pid), root, up(1), api.CodeNotFound, "no process"},
		{"not a number", "pid:abc", root, up(1), api.CodeBadRequest, "number"},
		{"unknown user", "user:nobody-is-called-so", root, up(1), api.CodeNotFound, "no user"},
		{"unknown cgroup", "cgroup:/not/there", root, up(1), api.CodeNotFound, "no cgroup"},
		{"root cgroup", "cgroup:/", root, up(1), api.CodeBadRequest, "whole machine"},
		{"unknown unit", "unit:not-there", root, up(1), api.CodeNotFound, "not-there.service"},
		{"group", "group:x", root, up(1), api.CodeNotFound, "no group x"},
		{"destination", "to:10.0.0.0/33", root, up(1), api.CodeBadRequest, "neither an address"},
		{"destination of a device", "to:10.0.0.0/8@link:lo", root, up(1), api.CodeBadRequest, "a part of the traffic is of"},
		{"destination of another user", "to:10.0.0.0/8@user:root", auth.Actor{UID: 12345}, up(1), api.CodeDenied, "root"},
		{"weight of a destination", "to:10.0.0.0/8", root, api.Wish{Weight: ptr(uint32(50))}, api.CodeBadRequest, "no meaning"},
		{"guarantee of a destination", "to:10.0.0.0/8", root, api.Wish{MinBytesPerSec: ptr(uint64(50))}, api.CodeBadRequest, "no meaning"},
		{"nothing", pidSubject(proc), root, api.Wish{}, api.CodeBadRequest, "nothing to set"},
		{"heavy", pidSubject(proc), root, api.Wish{Weight: ptr(uint32(10001))}, api.CodeBadRequest, "weight"},
		{"long burst", pidSubject(proc), root, api.Wish{BurstNS: ptr(^uint64(0))}, api.CodeBadRequest, "burst"},
		{"burst alone", pidSubject(proc), root, api.Wish{BurstNS: ptr(uint64(1))}, api.CodeBadRequest, "rate"},
		{"another's process", pidSubject(proc), user, up(1e6), api.CodeDenied, "another user"},
		{"another user", "user:0", user, up(1e6), api.CodeDenied, "root"},
		{"host by a user", "host", user, up(1e6), api.CodeDenied, "administrator"},
		{"weight by a user", "user:4242", user, api.Wish{Weight: ptr(uint32(101))}, api.CodeDenied, "weight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := h.set(c.by, c.subject, c.wish)
			require.Contains(t, testutil.RequireFault(t, c.code, err).Message, c.says)
		})
	}
	require.Zero(t, fake.Calls("SetNode"))
	_, err := h.set(user, "host", up(1e6))
	require.Equal(t, "sudo netnice set --host --up 1MB/s", testutil.RequireFault(t, api.CodeDenied, err).Hint)
	require.ErrorIs(t, err, auth.ErrDenied)
	testutil.RequireCode(t, api.CodeDenied, h.Down(context.Background(), user))
}

func TestUsersAndAdministratorStandSideBySide(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	bob := auth.Actor{UID: 4242}

	node := h.mustSet(bob, "user:4242", up(3e6))
	require.Equal(t, "4242", node.Limits[0].Owner)
	again := h.mustSet(root, "user:4242", up(5e6))
	require.Equal(t, node.ID, again.ID)
	require.Len(t, again.Limits, 2)
	spec, _ := fake.Spec(node.ID)
	require.EqualValues(t, 5e6, adminUp(spec))
	require.EqualValues(t, 3e6, spec.Ceilings[enforce.OwnerUser][enforce.Up].BytesPerSec)

	answer, err := h.remove(bob, "user:4242")
	require.NoError(t, err)
	require.Contains(t, answer.Warnings[0], "administrator")
	require.Len(t, answer.Node.Limits, 1)
	_, err = h.remove(bob, "user:4242")
	require.Equal(t, "sudo netnice unset --user 4242", testutil.RequireFault(t, api.CodeDenied, err).Hint)
	_, err = h.set(bob, "user:4242", up(0))
	require.NoError(t, err)
	spec, _ = fake.Spec(node.ID)
	require.EqualValues(t, 5e6, adminUp(spec), "a user never lifts the administrator's limit")

	h.mustSet(bob, "user:4242", up(1e6))
	answer, err = h.remove(root, "user:4242")
	require.NoError(t, err)
	require.Len(t, answer.Warnings, 1)
	require.True(t, h.gone(node.ID)())
	_, err = h.remove(root, "user:4242")
	testutil.RequireCode(t, api.CodeNoLimit, err)
}

func TestLowerWeightHolds(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	bob := auth.Actor{UID: 4242}
	node := h.mustSet(root, "user:4242", api.Wish{Weight: ptr(uint32(300))})
	require.EqualValues(t, 300, node.Weight)
	require.EqualValues(t, 50, h.mustSet(bob, "user:4242", api.Wish{Weight: ptr(uint32(50))}).Weight)
	_, err := h.remove(bob, "user:4242")
	require.NoError(t, err)
	spec, _ := fake.Spec(node.ID)
	require.EqualValues(t, 300, spec.Weight)
}

// Lifting a rate that was not set removes nothing else. Only lifting the last rate that was set removes the weight,
// too.
func TestLiftingWhatIsNotThere(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	subject := pidSubject(sleeper(t))
	none := api.Wish{TotalBytesPerSec: ptr(uint64(0))}
	h.mustSet(root, subject, api.Wish{Weight: ptr(uint32(50)), DownBytesPerSec: ptr(uint64(1e6)), TotalBytesPerSec: ptr(uint64(2e6))})
	node := h.mustSet(root, subject, none)
	require.Len(t, node.Limits, 1)
	require.Equal(t, api.Down, node.Limits[0].Direction)
	require.EqualValues(t, 50, node.Weight)

	h.mustSet(root, subject, api.Wish{DownBytesPerSec: ptr(uint64(0)), Weight: ptr(uint32(50))})
	answer, err := h.set(root, subject, none)
	require.NoError(t, err)
	require.False(t, answer.Changed)
	require.NotNil(t, answer.Node, "its weight stays")
	require.EqualValues(t, 50, answer.Node.Weight)
}

func TestDryRunChangesNothing(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	s := api.Subject{Kind: api.KindHost}
	answer, err := h.Set(context.Background(), root, api.SetRequest{Subject: s, Wish: up(1e6), DryRun: true})
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.Len(t, answer.Node.Limits, 1)
	require.Zero(t, fake.Calls("SetNode"))

	node := h.mustSet(root, "host", up(1e6))
	answer, err = h.Remove(context.Background(), root, s, true)
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.False(t, h.gone(node.ID)())
}

func TestKernelRefuses(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	fake.Fail("SetNode", errors.New("map is full"))
	_, err := h.set(root, "host", up(1e6))
	require.ErrorContains(t, err, "map is full")
	require.Zero(t, h.count())

	fake.Fail("SetNode", fmt.Errorf("find the process: %w", unix.ESRCH))
	_, err = h.set(root, pidSubject(sleeper(t)), up(1e6))
	testutil.RequireCode(t, api.CodeNotFound, err)

	fake.Fail("SetNode", nil)
	node := h.mustSet(root, "host", up(1e6))
	fake.Fail("SetNode", errors.New("map is full"))
	_, err = h.set(root, "host", up(2e6))
	require.Error(t, err)
	list, err := h.nodesFor("host")
	require.NoError(t, err)
	require.EqualValues(t, 1e6, list[0].Limits[0].BytesPerSec)
	fake.Fail("RemoveNode", errors.New("busy"))
	_, err = h.remove(root, "host")
	require.Error(t, err)
	require.False(t, h.gone(node.ID)())
}

func TestCapPerUser(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	bob := auth.Actor{UID: 4242}
	h.mu.Lock()
	for range auth.MaxNodesPerUser {
		id := h.freeID()
		n := &node{id: id, userUID: bob.UID, Wanted: plan.Wanted{Requested: limit.Owners{enforce.OwnerUser: {Up: 1}}}}
		n.res.Kind, n.res.Key = enforce.KindUser, uint64(1e6+id)
		h.keepNode(n)
	}
	h.mu.Unlock()
	_, err := h.set(bob, "user:4242", up(1e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "256")
	h.mustSet(root, "user:4242", up(1e6))
	h.mustSet(auth.Actor{UID: 4243}, "user:4243", up(1e6))
}

func TestCgroupByPath(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	dir := filepath.Join(h.opts.Identity.CgroupRoot, "a", "b")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	outer := h.mustSet(root, "cgroup:a", up(1e6))
	node := h.mustSet(root, "cgroup:a/b", up(1e6))
	require.Equal(t, outer.ID, node.Parent)
	require.Equal(t, "cgroup:/a/b", node.Subject.String())
	require.Equal(t, node.ID, h.mustSet(root, "cgroup:"+dir, up(2e6)).ID, "the same by its absolute path")

	fake.SetSockets(enforce.SocketStats{Nodes: []uint32{node.ID}})
	require.NoError(t, os.Remove(dir))
	require.Never(t, h.gone(node.ID), 10*h.opts.Tick, poll, "a socket still drains")
	fake.SetSockets()
	h.eventually("the node goes with its cgroup", h.gone(node.ID))
	h.eventually("the other stays", func() bool { return h.count() == 1 })
}

// A caller who raises one direction reads that the limit on both together still holds.
func TestTotalBelowANewLimit(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	subject := pidSubject(sleeper(t))
	h.mustSet(root, subject, api.Wish{TotalBytesPerSec: ptr[uint64](1e6)})
	answer, err := h.set(root, subject, api.Wish{DownBytesPerSec: ptr[uint64](3e6)})
	require.NoError(t, err)
	require.Contains(t, answer.Warnings, "the limit of 1 MB/s for both directions together is lower, and holds; --total 0 lifts it")
	answer, err = h.set(root, subject, api.Wish{DownBytesPerSec: ptr[uint64](5e5)})
	require.NoError(t, err)
	require.Empty(t, answer.Warnings)
}

// The remedy of a refused dry run is a dry run.
func TestRefusedDryRun(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	for dry, want := range map[bool]string{true: "sudo netnice set --host --up 1MB/s --dry-run", false: "sudo netnice set --host --up 1MB/s"} {
		_, err := h.Set(context.Background(), auth.Actor{UID: 4242}, api.SetRequest{Subject: api.Subject{Kind: api.KindHost}, Wish: up(1e6), DryRun: dry})
		require.Equal(t, want, testutil.RequireFault(t, api.CodeDenied, err).Hint)
	}
}
