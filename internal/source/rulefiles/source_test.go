package rulefiles

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/statefile"
	"github.com/netnice/netnice/internal/testutil"
)

// A rule holds by the time of the day, and a look at all processes makes up for lost events.
func TestRulesByTime(t *testing.T) {
	a, b := name("a"), name("b")
	var clock atomicTime
	clock.set(time.Date(2026, 11, 20, 7, 59, 0, 0, time.UTC))
	c := newHarness(t, rule(a, "time = '08:00-17:00'\ndays = 'mon-fri'\nup = '1MB/s'")+rule(b, "up = '1MB/s'"),
		func(o *Options) { o.Now = clock.get })
	pid := c.started(a)
	require.Zero(t, c.limit(pid))
	clock.set(time.Date(2026, 11, 20, 8, 0, 1, 0, time.UTC))
	c.eventually("the day begins", func() bool { return c.limit(pid) == 1e6 })
	clock.set(time.Date(2026, 11, 20, 17, 0, 1, 0, time.UTC))
	c.eventually("the day ends", func() bool { return c.limit(pid) == 0 })

	lost := c.Run(b, 0)
	time.Sleep(3 * c.opts.Tick)
	require.Zero(t, c.limit(lost), "nobody told of it")
	c.fake.Lose()
	c.eventually("a lost event is made up for", func() bool { return c.limit(lost) == 1e6 })
}

// The container of a process is kept with its limit, also after the process has ended, and after a restart.
func TestContainerOfARuleIsKept(t *testing.T) {
	list, err := rules.Parse("f", []byte("[[rule]]\ncontainer = 'web-*'\nup = '1MB/s'"), rules.Context{})
	require.NoError(t, err)
	set := rules.Compile(list)
	f := desired.Facts{Exe: "/usr/bin/curl", Comm: "curl", In: rules.Container{Names: []string{"web-1"}, ID: strings.Repeat("a", 64)}}
	text, err := json.Marshal(f)
	require.NoError(t, err)
	var again desired.Facts
	require.NoError(t, statefile.Strictly(text, &again))
	require.Equal(t, f, again)
	holding, _ := set.Match(again, time.Now())
	require.Len(t, holding, 1)
	f.In = rules.Container{}
	text, err = json.Marshal(f)
	require.NoError(t, err)
	require.NotContains(t, string(text), "In", "most processes are in none")
	holding, _ = set.Match(f, time.Now())
	require.Empty(t, holding)
	require.Equal(t, "web, also", containerText(rules.Container{Names: []string{"web", "also"}, ID: "a"}))
	require.Equal(t, "a", containerText(rules.Container{ID: "a"}))
}

// A reload of the rules by a user does not make the source read a half-written file of the administrator's.
func TestReloadReadsOneUsersFile(t *testing.T) {
	testutil.RequireRoot(t)
	const mallory = 1017
	a := name("a")
	c := newHarness(t, rule(a, "up = '1MB/s'"), func(o *Options) { o.Tick = time.Hour })
	c.reload()
	pid := c.started(a)
	require.EqualValues(t, 1e6, c.limit(pid))
	c.Write("") // an editor leaves it so for a moment
	written := time.Now()
	for range 3 {
		_, err := c.Reload(t.Context(), auth.Actor{UID: mallory})
		require.NoError(t, err)
		// After that the source reads the file by itself.
		if has := c.limit(pid); time.Since(written) < c.settlePause() {
			require.EqualValues(t, 1e6, has)
		}
	}
	c.WriteOwn(mallory, "[[rule]]\nprogram = 'x'\nup = '1MB/s'\n")
	list, err := c.Reload(t.Context(), auth.Actor{UID: mallory})
	require.NoError(t, err)
	require.Len(t, list.Rules, 2)
	c.reload()
	require.Zero(t, c.limit(pid))
}

// A look that follows another one at once, as the kernel tells of a change between two ticks, does not take a file that is
// being written for complete.
func TestFilesSettle(t *testing.T) {
	testutil.RequireRoot(t)
	const user = 1_999_000_700
	a := name("a")
	c := newHarness(t, rule(a, "up = '1MB/s'"), func(o *Options) { o.Tick = time.Hour })
	c.stop()
	s := New(c.opts) // only the test makes it look
	c.WriteOwn(user, rule(a, "up = '1MB/s'"))
	s.look(asking{all: true})
	rates := func() (list []uint64) {
		for _, r := range s.List(root).Rules {
			list = append(list, *r.UpBytesPerSec)
		}
		return list
	}
	require.Equal(t, []uint64{1e6, 1e6}, rates())
	for _, text := range []string{rule(a, "up = '2MB/s'"), rule(a, "up = '3MB/s'")} {
		before, written := rates(), time.Now()
		c.Write(text)
		c.WriteOwn(user, text)
		for _, asked := range []asking{{}, {told: true}, {}} {
			s.look(asked)
			if has := rates(); time.Since(written) < s.settlePause() { // the machine may be busy
				require.Equal(t, before, has, "it may not be complete")
			}
		}
	}
	time.Sleep(s.settlePause())
	s.look(asking{})
	require.Equal(t, []uint64{3e6, 3e6}, rates(), "it has stayed as it is")
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

// Events tell of rules that are read or refused, and of processes that they match. They name whose rules these are.
func TestEventsOfRules(t *testing.T) {
	a := name("a")
	c := newHarness(t, rule(a, "up = '1MB/s'"), nil)
	pid := c.started(a)
	c.Write("[[rule]]")
	c.reload()
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	// Keep may have read the wrong file before Reload did, and then both tell of it.
	told := slices.CompactFunc(c.events, func(a, b api.Event) bool { return a.Type == b.Type })
	require.Len(t, told, 3)
	require.Equal(t, api.EventRulesRead, told[0].Type)
	require.Equal(t, api.OwnerAdmin, told[0].Owner)
	require.EqualValues(t, 1, told[0].Count)
	require.Equal(t, api.EventRuleMatched, told[1].Type)
	require.Equal(t, pid, told[1].PID)
	require.Equal(t, a, told[1].Rules[0].Name)
	require.Equal(t, api.EventRulesRefused, told[2].Type)
	require.NotEmpty(t, told[2].Problems)
}

// A source whose host has lifted everything for good reads no rules any more. Rules that were read before have no
// effect: nothing holds after an exec.
func TestNothingIsAppliedAfterDown(t *testing.T) {
	a, b := name("a"), name("b")
	c := newHarness(t, rule(a, "up = '1MB/s'"), nil)
	require.NotZero(t, c.limit(c.started(a)))
	pid, other := c.Run(a, 0), c.Run(b, 0)
	c.memory.mu.Lock()
	c.isDown, c.nodes = true, nil
	c.memory.mu.Unlock()
	c.executed(pid)
	require.Zero(t, c.limit(pid))
	c.Write(rule(a, "up = '1MB/s'") + rule(b, "up = '1MB/s'"))
	require.Len(t, c.reload().Rules, 1)
	require.Zero(t, c.limit(pid))
	require.Zero(t, c.limit(other))
}

// Where the processes cannot be listed when rules are read, as without a free file descriptor, the next look tries again.
func TestProcessesThatCannotBeListed(t *testing.T) {
	var log testutil.Log
	a := name("a")
	proc := filepath.Join(t.TempDir(), "proc")
	require.NoError(t, os.Mkdir(proc, 0o755))
	resolver, err := identity.New(identity.Options{Proc: proc, CgroupRoot: t.TempDir()})
	require.NoError(t, err)
	require.NoError(t, os.Remove(proc))
	c := newHarness(t, rule(a, "up = '1MB/s'"), func(o *Options) { o.Resolver, o.Log = resolver, log.Logger(t) })
	pid := c.Run(a, 0)
	c.eventually("that is told", func() bool { return log.Count("list processes") > 0 })
	require.Zero(t, c.limit(pid))
	require.NoError(t, os.Symlink("/proc", proc))
	c.eventually("the rules are applied", func() bool { return c.limit(pid) == 1e6 })

	// Nor do rules end limits until they are compared with the processes.
	require.NoError(t, os.Remove(proc))
	c.Write(rule(name("b"), "up = '1MB/s'"))
	c.eventually("other rules are read", func() bool { return c.List(root).Rules[0].Name == name("b") })
	require.EqualValues(t, 1e6, c.limit(pid))
	require.NoError(t, os.Symlink("/proc", proc))
	c.eventually("the limit ends", func() bool { return c.limit(pid) == 0 })
}

// Execs are followed while there is a rule.
func TestExecsAreFollowed(t *testing.T) {
	c := newHarness(t, "", nil)
	require.False(t, c.fake.Follows())
	c.Write(rule(name("a"), "up = '1MB/s'"))
	c.reload()
	require.True(t, c.fake.Follows())
	c.Write("")
	c.reload()
	require.False(t, c.fake.Follows())
}

// A source without a folder of rules refuses to read any, and says so in lists.
func TestNoRulesAreFollowed(t *testing.T) {
	s := New(Options{Host: new(memory), Now: time.Now})
	require.False(t, s.List(root).Followed)
	_, err := s.Reload(t.Context(), root)
	require.ErrorContains(t, err, "without a folder of rules")
	_, err = s.Test(t.Context(), root, 1)
	require.ErrorContains(t, err, "without a folder of rules")
	s = New(Options{Host: new(memory), Now: time.Now, Dir: t.TempDir(), OnDemand: true})
	require.False(t, s.List(root).Followed)
	_, err = s.Reload(t.Context(), root)
	require.ErrorContains(t, err, "started on demand")
}
