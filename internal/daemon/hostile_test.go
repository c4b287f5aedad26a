package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/testutil"
)

// A process does not escape the administrator's limit by executing a program that only the user's own rule matches. The
// limit stays at the exec, and when rules are read or reviewed again.
func TestOwnRuleLeavesNoRule(t *testing.T) {
	testutil.RequireRoot(t)
	const mallory = 1017
	a, b := name("a"), name("b")
	c := newClerk(t, new(enforcetest.Kernel), fmt.Sprintf("[[rule]]\nprogram = '%s'\nuser = %d\nup = '1MB/s'\n", a, mallory), nil)
	c.WriteOwn(mallory, fmt.Sprintf("[[rule]]\nprogram = '%s'\nup = '8GB/s'\n", b))
	c.reload()
	cmd := exec.Command(c.Copy("bash", a), "-c", "read; exec "+c.Copy("sleep", b)+" 60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	pid := cmd.Process.Pid
	c.fake.Exec(pid)
	c.settled()
	require.EqualValues(t, 1e6, c.admins(pid))
	check := func(when string) {
		t.Helper()
		require.EqualValues(t, 1e6, c.admins(pid), "the administrator's stays %s", when)
		c.mu.Lock()
		defer c.mu.Unlock()
		n := c.nodes.FindName(identity.PIDSubject(pid))
		require.NotNil(t, n)
		require.Len(t, n.Ruled.Owners[enforce.OwnerUser].Rules, 1, when)
		// The next daemon does the same.
		saved := nodeOf(n.wanted())
		require.Equal(t, a, saved.Ruled.Owners[enforce.OwnerAdmin].Facts.Comm)
		require.Equal(t, b, saved.Ruled.Owners[enforce.OwnerUser].Facts.Comm)
	}
	_, err = in.Write([]byte("\n"))
	require.NoError(t, err)
	c.eventually("it becomes b", func() bool { path, _, _ := c.resolver.Program(pid); return strings.HasSuffix(path, b) })
	c.fake.Exec(pid)
	c.settled()
	check("at the exec")
	c.reload()
	check("when rules are read again")
	// A child may live on. The daemon reviews the rules with the facts of each owner.
	end(cmd)
	c.reload()
	check("after its end")
}

// matchMany gives processes of a user, which do not exist, nodes of their own by a rule of an owner.
func (c *clerk) matchMany(user uint32, owner enforce.Owner, many int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range uint64(many) {
		const above = 1 << 22 // all numbers of processes
		next := node{since: time.Now(), res: identity.Resolved{
			Subject: identity.PIDSubject(int(above + i)), Kind: enforce.KindTree, Key: above + i, StartBoottimeNS: identity.TickNS, UID: user,
		}}
		next.Ruled.Owners[owner] = desired.OwnerRules{Wish: limit.Limit{Up: 1e6}, Rules: []rules.Origin{{Name: "many", Key: "many"}}}
		if owner == enforce.OwnerUser {
			next.setUser(user)
		}
		_, err := c.commit(nil, &next)
		require.NoError(c.t, err)
	}
}

// Processes of a user that the administrator's rules match beyond the bound have one limit for each rule together, also
// for a part of their traffic. Other users' processes have their own.
func TestManyMatchedProcesses(t *testing.T) {
	testutil.RequireRoot(t)
	const mallory, bob = 1017, 1018
	a := name("a")
	text := fmt.Sprintf("[[rule]]\nname = 'to'\nprogram = '%s'\nport = 443\nup = '500KB/s'\n", a) + rule(a, "up = '1MB/s'")
	c := newClerk(t, new(enforcetest.Kernel), text, nil)
	c.matchMany(mallory, enforce.OwnerAdmin, auth.MaxRuledPerUser-1)
	run := func(user uint32) int {
		pid := c.Run(a, user)
		c.fake.Exec(pid)
		c.settled()
		return pid
	}
	last := run(mallory)
	require.EqualValues(t, 1e6, c.limit(last))
	beyond, second := run(mallory), run(mallory)
	require.Zero(t, c.limit(beyond))
	require.Equal(t, c.fake.Trees(beyond), c.fake.Trees(second))
	var rates []uint64
	for _, id := range c.fake.Trees(beyond) {
		spec, _ := c.fake.Spec(id)
		rates = append(rates, adminUp(spec))
	}
	require.ElementsMatch(t, []uint64{1e6, 0}, rates, "the tree that marks whose connections are meant has no limit itself")
	for _, pid := range []int{last, beyond, second} {
		require.EqualValues(t, 500e3, c.towards(pid, enforce.BookAdmin, "10.0.0.1", 443), "%d of %d, %d, %d", pid, last, beyond, second)
	}
	require.EqualValues(t, 1e6, c.limit(run(bob)))
	c.reload()
	require.Equal(t, c.fake.Trees(beyond), c.fake.Trees(second), "the same after a look at all processes")
	require.Len(t, c.fake.Trees(beyond), 2)
}

// A user's own rules beyond the user's bound hold for none of further processes.
func TestManyProcessesOfOwnRules(t *testing.T) {
	testutil.RequireRoot(t)
	const mallory = 1017
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), "", nil)
	c.WriteOwn(mallory, rule(a, "up = '1MB/s'"))
	c.reload()
	c.matchMany(mallory, enforce.OwnerUser, auth.MaxNodesPerUser)
	pid := c.Run(a, mallory)
	c.fake.Exec(pid)
	c.settled()
	require.Zero(t, c.limit(pid))
	require.Empty(t, c.fake.Trees(pid))
}

// A process may change its user: the previous user's request is not the next user's.
func TestAnotherUsersWish(t *testing.T) {
	testutil.RequireRoot(t)
	const alice, mallory = 1018, 1017
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	subject := pidSubject(cmd)
	h.mustSet(auth.Actor{UID: mallory}, subject, up(1e6))
	h.mu.Lock()
	for n := range h.nodes.All() {
		n.setUser(alice) // she was its user at that time
		h.keepNode(n)
	}
	h.mu.Unlock()
	_, err := h.set(auth.Actor{UID: mallory}, subject, up(5e6))
	testutil.RequireCode(t, api.CodeDenied, err)
	_, err = h.remove(auth.Actor{UID: mallory}, subject)
	testutil.RequireCode(t, api.CodeDenied, err)
	_, err = h.remove(root, subject)
	require.NoError(t, err)
}

// The ids in /etc/subuid share a quota, and count as their owner in the kernel.
func TestSubordinatesCountAsOne(t *testing.T) {
	testutil.RequireRoot(t)
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.Subordinates = filepath.Join(opts.StateDir, "..", "subuid")
	require.NoError(t, os.WriteFile(opts.Subordinates, []byte("1017:100000:65536\n"), 0o644))
	h := start(t, fake, opts)
	require.Equal(t, []enforce.Subordinates{{First: 100000, Last: 165535, Owner: 1017}}, fake.Subordinates())
	h.mu.Lock()
	for i := range auth.MaxNodesPerUser {
		n := &node{id: uint32(i + 1), Wanted: plan.Wanted{Requested: limit.Owners{enforce.OwnerUser: limit.Limit{Up: 1}}}, userUID: 100000 + uint32(i%5)}
		n.res.Kind, n.res.Key = enforce.KindUser, uint64(i)
		h.keepNode(n)
	}
	for _, as := range []uint32{1017, 100000, 100004, 165536} {
		want := 0
		for n := range h.nodes.All() {
			if h.countsAs(n.userUID) == as {
				want++
			}
		}
		require.Equal(t, want, h.countOf(as, h.nodes.Owned), as)
	}
	err := h.quota(auth.Actor{UID: 165535}, true)
	other := h.quota(auth.Actor{UID: 165536}, true)
	for n := range h.nodes.All() {
		h.forgetNode(n.id)
	}
	h.mu.Unlock()
	testutil.RequireCode(t, api.CodeConflict, err)
	require.NoError(t, other)
	require.NoError(t, os.WriteFile(opts.Subordinates, []byte("1017:100000:5\n"), 0o644))
	h.eventually("a change is seen", func() bool { return len(fake.Subordinates()) == 1 && fake.Subordinates()[0].Last == 100004 })
}

// Limits that are nested too deeply are refused with a remedy.
func TestTooDeep(t *testing.T) {
	fake := new(enforcetest.Kernel)
	h := start(t, fake, testOptions(t, fake))
	fake.Fail("SetNode", fmt.Errorf("%w: 3 are", enforce.ErrTooDeep))
	_, err := h.set(root, pidSubject(sleeper(t)), up(1e6))
	fake.Fail("SetNode", nil)
	testutil.RequireCode(t, api.CodeConflict, err)
	require.Zero(t, h.count())
}
