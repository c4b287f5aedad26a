package daemon

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// lateDirectory is a name service that knows the user bob and the group admins once it is up, and a clock that tests
// put forward.
type lateDirectory struct {
	t       *testing.T
	dir     string
	forward atomic.Int64 // ns
}

func (l *lateDirectory) options(o *Options) {
	l.dir = l.t.TempDir()
	none, getent := filepath.Join(l.dir, "none"), filepath.Join(l.dir, "getent")
	require.NoError(l.t, os.WriteFile(getent, []byte("#!/bin/sh\ntest -e "+l.dir+`/up || exit 2
case "$2" in
bob|70001) echo "bob:*:70001:70000:Bob:/home/bob:/bin/sh" ;;
admins) echo "admins:*:70009:" ;;
*) exit 2 ;;
esac
`), 0o755))
	o.Identity.Accounts = account.New(account.Options{
		Passwd: none, Group: none, Getent: []string{getent}, Limit: soon, FreshUnknown: 300 * time.Millisecond,
	})
	o.now = func() time.Time { return time.Now().Add(time.Duration(l.forward.Load())) }
}

func (l *lateDirectory) comeUp() {
	require.NoError(l.t, os.WriteFile(filepath.Join(l.dir, "up"), nil, 0o644))
}

const rulesOfBob = "[[rule]]\nname = 'bobs'\nprogram = 'none-is-called-so'\nuser = 'bob'\nup = '1MB/s'\n"

// Rules name users of a directory. No look at them waits for it: one that comes up later is asked again.
func TestRulesNameUsersOfADirectory(t *testing.T) {
	l := &lateDirectory{t: t}
	c := newClerk(t, new(enforcetest.Kernel), rulesOfBob, l.options)
	c.eventually("that he is not known", func() bool {
		list, err := c.Rules(t.Context(), root)
		return err == nil && len(list.Problems) == 1 && list.Problems[0].Message == `no user is called "bob"`
	})
	l.comeUp()
	c.eventually("the rules hold without anybody's doing", func() bool {
		l.forward.Add(int64(missingPause))
		list, err := c.Rules(t.Context(), root)
		return err == nil && len(list.Problems) == 0 && len(list.Rules) == 1
	})
}

// Who asks for a look at the rules has the answer of the directory in it.
func TestReloadLooksUsersUp(t *testing.T) {
	l := &lateDirectory{t: t}
	c := newClerk(t, new(enforcetest.Kernel), "", l.options)
	l.comeUp()
	c.write(rulesOfBob)
	list := c.reload()
	require.Empty(t, list.Problems)
	require.Len(t, list.Rules, 1)
}

// A directory's user has rules of their own from when they have run something, or asked for a look at them.
func TestHomesOfADirectory(t *testing.T) {
	l := &lateDirectory{t: t}
	c := newClerk(t, new(enforcetest.Kernel), "", func(o *Options) {
		l.options(o)
		o.Homes = nil
	})
	l.comeUp()
	homes, err := c.Daemon.opts.Homes()
	require.NoError(t, err)
	require.Empty(t, homes)
	by := root
	by.UID = 70001
	_, err = c.ReloadRules(t.Context(), by)
	require.NoError(t, err)
	c.eventually("the home is known", func() bool {
		homes, err := c.Daemon.opts.Homes()
		return err == nil && homes[70001] == "/home/bob"
	})
}

// The user ids that a directory's user was given count as theirs once they were looked up.
func TestSubordinatesOfADirectory(t *testing.T) {
	l, fake := &lateDirectory{t: t}, new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	l.options(&opts)
	opts.Subordinates = filepath.Join(l.dir, "subuid")
	require.NoError(t, os.WriteFile(opts.Subordinates, []byte("bob:200000:65536\n"), 0o644))
	h := start(t, fake, opts)
	require.EqualValues(t, 200001, h.countsAs(200001))
	l.comeUp()
	h.eventually("they are bob's", func() bool {
		l.forward.Add(int64(subordinatesLate))
		return h.countsAs(200001) == 70001
	})
	require.Equal(t, []enforce.Subordinates{{First: 200000, Last: 265535, Owner: 70001}}, fake.Subordinates())
}

// The administrators' group of a directory that comes up later than the daemon is known then.
func TestAdminGroupOfADirectory(t *testing.T) {
	l, fake := &lateDirectory{t: t}, new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	l.options(&opts)
	opts.AdminGroup = "admins"
	h := start(t, fake, opts)
	require.Nil(t, fake.AdminGroup())
	l.comeUp()
	h.eventually("the kernel is told", func() bool {
		l.forward.Add(int64(adminGroupPause))
		gid := fake.AdminGroup()
		return gid != nil && *gid == 70009
	})
	h.eventually("callers are", func() bool { gid := h.admins.Load(); return gid != nil && *gid == 70009 })
	require.NoError(t, h.stop())
	start(t, fake, opts)
	require.EqualValues(t, 70009, *fake.AdminGroup(), "the next daemon begins with it")
}
