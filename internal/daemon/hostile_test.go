package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/testutil"
)

// ownRules gives a test user a rule file of their own.
func (c *clerk) ownRules(uid uint32, text string) {
	c.t.Helper()
	home := filepath.Join(c.opts.StateDir, "..", fmt.Sprint("home", uid))
	path := filepath.Join(home, ".config/netnice/netnice.toml")
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o644))
	require.NoError(c.t, os.Chown(path, int(uid), int(uid)))
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	c.homes[uid] = home
}

// touchRules makes the daemon look at a user's own rules.
func (c *clerk) touchRules(uid uint32) {
	c.t.Helper()
	now := time.Now()
	require.NoError(c.t, os.Chtimes(filepath.Join(c.homes[uid], ".config/netnice/netnice.toml"), now, now))
}

func (c *clerk) admins(pid int) uint64 {
	c.t.Helper()
	specs, err := c.fake.Nodes()
	require.NoError(c.t, err)
	for _, s := range specs {
		if s.Kind == enforce.KindTree && s.Subject == uint64(pid) {
			return adminUp(s)
		}
	}
	return 0
}

// A process does not escape the administrator's limit by executing a program that only the user's own rule matches. The
// limit stays at the exec, and when rules are read or reviewed again.
func TestOwnRuleLeavesNoRule(t *testing.T) {
	testutil.RequireRoot(t)
	const mallory = 1017
	a, b := name("a"), name("b")
	c := newClerk(t, new(enforcetest.Kernel), fmt.Sprintf("[[rule]]\nprogram = '%s'\nuser = %d\nup = '1MB/s'\n", a, mallory), nil)
	c.ownRules(mallory, fmt.Sprintf("[[rule]]\nprogram = '%s'\nup = '8GB/s'\n", b))
	c.reload()
	pid := c.runs(a, mallory)
	c.fake.Exec(pid)
	c.settled()
	require.EqualValues(t, 1e6, c.admins(pid))
	// It becomes b.
	d := c.Daemon
	d.rules.mu.Lock()
	res, err := d.resolver.Resolve(context.Background(), api.Subject{Kind: api.KindPID, ID: fmt.Sprint(pid)})
	require.NoError(t, err)
	f := &desired.Facts{Exe: filepath.Join(c.bin, b), Comm: b, User: mallory}
	m := d.match(f, d.now())
	require.Empty(t, m[enforce.OwnerAdmin].holding)
	require.Len(t, m[enforce.OwnerUser].holding, 1)
	n := d.applyRules(res, f, m, d.now())
	d.rules.mu.Unlock()
	require.NotNil(t, n)
	require.EqualValues(t, 1e6, c.admins(pid), "the administrator's stays")
	require.Len(t, n.ruled.Owners[enforce.OwnerUser].Rules, 1)
	// The daemon reviews the rules again, with the facts of each owner.
	d.rules.mu.Lock()
	d.mu.Lock()
	d.reviewRuled(n, d.now())
	d.mu.Unlock()
	d.rules.mu.Unlock()
	require.EqualValues(t, 1e6, c.admins(pid))
	require.Len(t, n.ruled.Owners[enforce.OwnerUser].Rules, 1)
	// The next daemon does the same.
	saved := nodeOf(n.wanted())
	require.Equal(t, a, saved.ruled.Owners[enforce.OwnerAdmin].Facts.Comm[:len(a)])
	require.Equal(t, b, saved.ruled.Owners[enforce.OwnerUser].Facts.Comm)
}

// A reload of the rules by a user does not make the daemon read a half-written file of the administrator's.
func TestReloadReadsOneUsersFile(t *testing.T) {
	testutil.RequireRoot(t)
	const mallory = 1017
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'"), func(o *Options) { o.Tick = time.Hour })
	c.reload()
	pid := c.started(a)
	require.EqualValues(t, 1e6, c.admins(pid))
	c.write("") // an editor leaves it so for a moment
	written := time.Now()
	for range 3 {
		_, err := c.ReloadRules(context.Background(), auth.Actor{UID: mallory})
		require.NoError(t, err)
		// After that the daemon reads the file by itself.
		if has := c.admins(pid); time.Since(written) < settlePause {
			require.EqualValues(t, 1e6, has)
		}
	}
	c.ownRules(mallory, "[[rule]]\nprogram = 'x'\nup = '1MB/s'\n")
	list, err := c.ReloadRules(context.Background(), auth.Actor{UID: mallory})
	require.NoError(t, err)
	require.Len(t, list.Rules, 2)
	c.reload()
	require.Zero(t, c.admins(pid))
}

func TestRuleDebt(t *testing.T) {
	var d ruleDebt
	now := time.Now()
	require.True(t, d.may(now))
	d.took += 2 * mostRuleDebt
	require.False(t, d.may(now))
	require.False(t, d.may(now.Add(ruleTimeShare*mostRuleDebt/2)))
	require.True(t, d.may(now.Add(3*ruleTimeShare*mostRuleDebt/2)))
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
	requireCode(t, api.CodeDenied, err)
	_, err = h.remove(auth.Actor{UID: mallory}, subject)
	requireCode(t, api.CodeDenied, err)
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
		n := &node{id: uint32(i + 1), requested: limit.Owners{enforce.OwnerUser: limit.Limit{Up: 1}}, userUID: 100000 + uint32(i%5)}
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
	requireCode(t, api.CodeConflict, err)
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
	requireCode(t, api.CodeConflict, err)
	require.Zero(t, h.count())
}
