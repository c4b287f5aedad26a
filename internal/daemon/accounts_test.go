package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// lateDirectory is a name service that knows the user bob and the group admins once it is up. It also has a clock that
// tests put forward.
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
	o.now = l.now
}

func (l *lateDirectory) now() time.Time { return time.Now().Add(time.Duration(l.forward.Load())) }

func (l *lateDirectory) comeUp() {
	require.NoError(l.t, os.WriteFile(filepath.Join(l.dir, "up"), nil, 0o644))
}

// crowded makes the directory hang until it is up, and then know the users u1, u2 and so on.
func (l *lateDirectory) crowded(o *Options) {
	l.options(o)
	none, getent := filepath.Join(l.dir, "none"), filepath.Join(l.dir, "crowded")
	require.NoError(l.t, os.WriteFile(getent, []byte("#!/bin/sh\ntest -e "+l.dir+`/up || exec sleep 60
case "$2" in
u*) echo "$2:*:$((70000 + ${2#u})):70000::/nowhere:/bin/sh" ;;
*) exit 2 ;;
esac
`), 0o755))
	o.Identity.Accounts = account.New(account.Options{
		Passwd: none, Group: none, Getent: []string{getent}, Limit: 500 * time.Millisecond, FreshUnknown: 300 * time.Millisecond,
	})
}

// crowd is more users than the daemon looks up at a time.
const crowd = 30

const rulesOfBob = "[[rule]]\nname = 'bobs'\nprogram = 'none-is-called-so'\nuser = 'bob'\nup = '1MB/s'\n"

// Rules may name users of a directory. No reading of the rules waits for the directory: the daemon asks one that comes
// up later again.
func TestRulesNameUsersOfADirectory(t *testing.T) {
	l := &lateDirectory{t: t}
	c := newClerk(t, new(enforcetest.Kernel), rulesOfBob, l.options)
	c.eventually("that he is not known", func() bool {
		list, err := c.Rules(t.Context(), root)
		return err == nil && len(list.Problems) == 1 && list.Problems[0].Message == `no user is called "bob"`
	})
	l.comeUp()
	c.eventually("the rules hold without anybody's doing", func() bool {
		l.forward.Add(int64(account.MissingPause))
		list, err := c.Rules(t.Context(), root)
		return err == nil && len(list.Problems) == 0 && len(list.Rules) == 1
	})
}

// The answer to a reload of the rules includes the directory's answer about its users.
func TestReloadLooksUsersUp(t *testing.T) {
	l := &lateDirectory{t: t}
	c := newClerk(t, new(enforcetest.Kernel), "", l.options)
	l.comeUp()
	c.Write(rulesOfBob)
	list := c.reload()
	require.Empty(t, list.Problems)
	require.Len(t, list.Rules, 1)
}

// A user of a directory has rules of their own once they have run something, or have asked to reload the rules.
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

// The subordinate user ids of a directory's user count as that user's once the directory has answered.
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

// If the administrators' group is in a directory that comes up later than the daemon, the daemon learns it then.
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

// The log names a misspelt user in the rules once, although the daemon asks the directory again each minute.
func TestMisspeltUserIsToldOnce(t *testing.T) {
	l, log := &lateDirectory{t: t}, new(testutil.Log)
	const refused = "rules are not in force"
	c := newClerk(t, new(enforcetest.Kernel), rulesOfBob, func(o *Options) {
		l.options(o)
		o.Logger = log.Logger(t)
	})
	c.eventually("it is told", func() bool { return log.Count(refused) == 1 })
	for range 4 {
		l.forward.Add(int64(account.MissingPause))
		time.Sleep(400 * time.Millisecond) // the answer is too old by then
	}
	require.Equal(t, 1, log.Count(refused))
	c.Write("# changed\n" + rulesOfBob)
	c.eventually("it is told of files that have changed", func() bool { return log.Count(refused) == 2 })
}

// A directory hangs, and the rules name more users than the daemon looks up at a time. The daemon still reports that
// these rules are not in force.
func TestRulesOfADirectoryThatHangs(t *testing.T) {
	l, log := &lateDirectory{t: t}, new(testutil.Log)
	const refused = "rules are not in force"
	var users []string
	for i := range crowd {
		users = append(users, fmt.Sprintf("'u%d'", i+1))
	}
	text := "[[rule]]\nname = 'crowd'\nprogram = 'none-is-called-so'\nuser = [" + strings.Join(users, ", ") + "]\nup = '1MB/s'\n"
	c := newClerk(t, new(enforcetest.Kernel), text, func(o *Options) {
		l.crowded(o)
		o.Logger = log.Logger(t)
	})
	c.eventually("it is told", func() bool {
		l.forward.Add(int64(time.Second))
		list, err := c.Rules(t.Context(), root)
		return err == nil && len(list.Problems) > 0 && strings.Contains(list.Problems[0].Message, "the name service does not answer")
	})
	for range 20 {
		l.forward.Add(int64(account.MissingPause))
		time.Sleep(2 * c.opts.Tick)
	}
	require.Equal(t, 1, log.Count(refused))
	l.comeUp()
	c.eventually("the rules hold when it answers", func() bool {
		l.forward.Add(int64(time.Second))
		list, err := c.Rules(t.Context(), root)
		return err == nil && len(list.Problems) == 0 && len(list.Rules) == 1
	})
}

// While a directory hangs, the subordinate user ids of its users are unknown, which the log says once. Those of other
// users are known.
func TestSubordinatesOfADirectoryThatHangs(t *testing.T) {
	l, log, fake := &lateDirectory{t: t}, new(testutil.Log), new(enforcetest.Kernel)
	const silent = "the name service does not answer who some users are"
	opts := testOptions(t, fake)
	l.crowded(&opts)
	opts.Logger = log.Logger(t)
	opts.Subordinates = filepath.Join(l.dir, "subuid")
	text := "5000:300000:65536\n"
	for i := range crowd {
		text += fmt.Sprintf("u%d:%d:65536\n", i+1, (i+10)*65536)
	}
	require.NoError(t, os.WriteFile(opts.Subordinates, []byte(text), 0o644))
	h := start(t, fake, opts)
	require.EqualValues(t, 5000, h.countsAs(300001))
	h.eventually("it is told", func() bool {
		l.forward.Add(int64(time.Second))
		return log.Count(silent) == 1
	})
	h.mu.Lock()
	again := h.subordinates.again
	h.mu.Unlock()
	require.LessOrEqual(t, again.Sub(l.now()), account.MissingPause, "it is asked again soon")
	for range 20 {
		l.forward.Add(int64(subordinatesLate))
		time.Sleep(2 * h.opts.Tick)
	}
	require.Equal(t, 1, log.Count(silent))
	l.comeUp()
	h.eventually("all are known when it answers", func() bool {
		l.forward.Add(int64(subordinatesLate))
		for i := range uint32(crowd) {
			if h.countsAs((i+10)*65536+1) != 70000+i+1 {
				return false
			}
		}
		return true
	})
}
