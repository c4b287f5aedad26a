package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/account/accounttest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// use makes a daemon use the accounts and the clock of a test.
func use(l *accounttest.Late, o *Options) { o.Identity.Accounts, o.now = l.Accounts, l.Now }

// A user of a directory has rules of their own once they have run something, or have asked to reload the rules.
func TestHomesOfADirectory(t *testing.T) {
	l := accounttest.NewLate(t)
	c := newClerk(t, new(enforcetest.Kernel), "", func(o *Options) {
		use(l, o)
		o.Homes = nil
	})
	l.ComeUp()
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
	l, fake := accounttest.NewLate(t), new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	use(l, &opts)
	opts.Subordinates = filepath.Join(t.TempDir(), "subuid")
	require.NoError(t, os.WriteFile(opts.Subordinates, []byte("bob:200000:65536\n"), 0o644))
	h := start(t, fake, opts)
	require.EqualValues(t, 200001, h.countsAs(200001))
	l.ComeUp()
	h.eventually("they are bob's", func() bool {
		l.Forward(subordinatesLate)
		return h.countsAs(200001) == 70001
	})
	require.Equal(t, []enforce.Subordinates{{First: 200000, Last: 265535, Owner: 70001}}, fake.Subordinates())
}

// If the administrators' group is in a directory that comes up later than the daemon, the daemon learns it then.
func TestAdminGroupOfADirectory(t *testing.T) {
	l, fake := accounttest.NewLate(t), new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	use(l, &opts)
	opts.AdminGroup = "admins"
	h := start(t, fake, opts)
	require.Nil(t, fake.AdminGroup())
	l.ComeUp()
	h.eventually("the kernel is told", func() bool {
		l.Forward(adminGroupPause)
		gid := fake.AdminGroup()
		return gid != nil && *gid == 70009
	})
	h.eventually("callers are", func() bool { gid := h.admins.Load(); return gid != nil && *gid == 70009 })
	require.NoError(t, h.stop())
	start(t, fake, opts)
	require.EqualValues(t, 70009, *fake.AdminGroup(), "the next daemon begins with it")
}

// While a directory hangs, the subordinate user ids of its users are unknown, which the log says once. Those of other
// users are known.
func TestSubordinatesOfADirectoryThatHangs(t *testing.T) {
	l, log, fake := accounttest.NewCrowded(t), new(testutil.Log), new(enforcetest.Kernel)
	const silent = "the name service does not answer who some users are"
	opts := testOptions(t, fake)
	use(l, &opts)
	opts.Logger = log.Logger(t)
	opts.Subordinates = filepath.Join(t.TempDir(), "subuid")
	text := "5000:300000:65536\n"
	for i := range accounttest.Crowd {
		text += fmt.Sprintf("u%d:%d:65536\n", i+1, (i+10)*65536)
	}
	require.NoError(t, os.WriteFile(opts.Subordinates, []byte(text), 0o644))
	h := start(t, fake, opts)
	require.EqualValues(t, 5000, h.countsAs(300001))
	h.eventually("it is told", func() bool {
		l.Forward(time.Second)
		return log.Count(silent) == 1
	})
	h.mu.Lock()
	again := h.subordinates.again
	h.mu.Unlock()
	require.LessOrEqual(t, again.Sub(l.Now()), account.MissingPause, "it is asked again soon")
	for range 20 {
		l.Forward(subordinatesLate)
		time.Sleep(2 * h.opts.Tick)
	}
	require.Equal(t, 1, log.Count(silent))
	l.ComeUp()
	h.eventually("all are known when it answers", func() bool {
		l.Forward(subordinatesLate)
		for i := range uint32(accounttest.Crowd) {
			if h.countsAs((i+10)*65536+1) != 70000+i+1 {
				return false
			}
		}
		return true
	})
}
