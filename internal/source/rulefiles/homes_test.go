package rulefiles

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/testutil"
)

// Homes that do not answer neither keep others' rules from being read nor make any caller wait. They are logged once.
func TestHomesThatDoNotAnswer(t *testing.T) {
	testutil.RequireRoot(t)
	const firstStuck, stuck, firstUser, users = 1_999_000_100, 20, 1_999_000_200, 20
	const notAnswering = `stay" uid=19990001` // log line about one of the users whose homes hang
	var log testutil.Log
	var hang, locked atomic.Bool
	var looks [stuck]atomic.Int32 // at homes that do not answer
	var source atomic.Pointer[Source]
	var forward atomic.Int64 // ns
	until := make(chan struct{})
	answer := sync.OnceFunc(func() { close(until) })
	c := newHarness(t, "", func(o *Options) {
		o.Log = log.Logger(t)
		o.Now = func() time.Time { return time.Now().Add(time.Duration(forward.Load())) }
		o.atHome = func(uid uint32) {
			if hang.Load() && uid >= firstStuck && uid < firstStuck+stuck {
				looks[uid-firstStuck].Add(1)
				<-until
				return
			}
			if s := source.Load(); s != nil && !getsFree(&s.mu) {
				locked.Store(true)
			}
		}
	})
	t.Cleanup(answer)
	source.Store(c.Source)
	count := func() (rules, problems int) {
		list := c.List(root)
		for _, p := range list.Problems {
			require.Contains(t, p.Message, "does not answer")
		}
		return len(list.Rules), len(list.Problems)
	}
	for i := range uint32(stuck) {
		c.WriteOwn(firstStuck+i, rule("x", "up = '1MB/s'"))
	}
	c.eventually("all are read", func() bool { rules, _ := count(); return rules == stuck })
	hang.Store(true)
	for i := range uint32(stuck) {
		c.TouchOwn(firstStuck + i)
	}
	for i := range uint32(users) {
		c.WriteOwn(firstUser+i, rule("y", "up = '1MB/s'"))
	}
	c.eventually("those who answer are read, and the others' rules stay", func() bool {
		rules, problems := count()
		return rules == stuck+users && problems == stuck
	})
	time.Sleep(20 * c.opts.Tick)
	require.Equal(t, stuck, log.Count(notAnswering), "each is told once")
	for i := range looks {
		require.EqualValues(t, 1, looks[i].Load(), "it is not looked at again while it does not answer")
	}
	hang.Store(false)
	answer()
	c.eventually("they answer again", func() bool { _, problems := count(); return problems == 0 })
	forward.Add(int64(homeLinePause))
	c.eventually("that is told", func() bool { return log.Count("a home folder answers again") >= stuck })
	require.False(t, locked.Load(), "the lock on the rules is held while homes are looked at")
}

// The rules in a home that is slow each time are read all the same, and the slowness is logged once.
func TestSlowHome(t *testing.T) {
	testutil.RequireRoot(t)
	const user = 1_999_000_300
	var log testutil.Log
	var looks atomic.Int32
	c := newHarness(t, "", func(o *Options) {
		o.Log = log.Logger(t)
		o.atHome = func(uint32) {
			looks.Add(1)
			time.Sleep(filePatience + 50*time.Millisecond)
		}
	})
	c.WriteOwn(user, rule("x", "up = '1MB/s'"))
	c.eventually("its rules are read", func() bool {
		if list := c.List(root); len(list.Rules) != 1 {
			return false
		}
		c.TouchOwn(user) // it is looked at again
		return looks.Load() >= 4
	})
	require.Equal(t, 1, log.Count("a home folder does not answer"))
}

// getsFree reports whether a lock becomes free within half the time that a look waits for a home.
func getsFree(lock *sync.Mutex) bool {
	for until := time.Now().Add(filePatience / 2); time.Now().Before(until); time.Sleep(poll) {
		if lock.TryLock() {
			lock.Unlock()
			return true
		}
	}
	return false
}

// A look ends in time although homes do not answer, and the number of such homes stays below its bound.
func TestLookAtManyHomes(t *testing.T) {
	var log testutil.Log
	until := make(chan struct{})
	s := New(Options{Log: log.Logger(t), Now: time.Now, atHome: func(uint32) { <-until }})
	h := &s.homes
	home := t.TempDir()
	look := func(first uint32) {
		t.Helper()
		var list []*homeLook
		for i := range uint32(100 * homesAtOnce) {
			list = append(list, &homeLook{uid: first + i, home: home})
		}
		began := time.Now()
		require.Empty(t, s.seeHomes(list, true))
		require.Less(t, time.Since(began), homesPatience+soon)
	}
	look(0)
	require.GreaterOrEqual(t, len(h.hanging), homesAtOnce)
	require.Less(t, len(h.hanging), 100*homesAtOnce, "the next look goes on")
	for uid := uint32(100_000); len(h.hanging) < mostHanging-1; uid++ {
		h.hanging[uid] = &homeLook{uid: uid, home: home, done: until}
	}
	look(1000)
	require.Less(t, len(h.hanging), mostHanging+homesAtOnce)
	before := len(h.hanging)
	look(2000)
	look(3000)
	require.Len(t, h.hanging, before)
	require.Equal(t, 1, log.Count("so many home folders"))
	close(until)
	for _, l := range h.hanging {
		<-l.done
	}
}

// Slow homes delay a look that was not requested no longer than homes without an answer do.
func TestLookAtManySlowHomes(t *testing.T) {
	const slow = filePatience / 10
	s := New(Options{Log: new(testutil.Log).Logger(t), Now: time.Now, atHome: func(uint32) { time.Sleep(slow) }})
	home := t.TempDir()
	var list []*homeLook
	for uid := range uint32(2 * homesAtOnce * homesPatience / slow) {
		list = append(list, &homeLook{uid: uid, home: home})
	}
	answered := s.seeHomes(list, false)
	require.NotEmpty(t, answered)
	require.Less(t, len(answered), len(list))
}

// The administrator's rules are in force before any home is read.
func TestSystemRulesWaitForNoHome(t *testing.T) {
	const firstUser, users = 1_999_000_400, 20
	a := name("a")
	var at atomic.Pointer[harness]
	var pid int
	var looks, early atomic.Int32
	c := newHarness(t, "", func(o *Options) {
		o.Tick = time.Hour // no other look
		o.atHome = func(uint32) {
			c := at.Load()
			if c == nil {
				return
			}
			if looks.Add(1); c.limit(pid) == 0 {
				early.Add(1)
			}
		}
	})
	pid = c.Run(a, 0)
	for i := range uint32(users) {
		c.AddHome(firstUser+i, t.TempDir())
	}
	at.Store(c)
	c.Write(rule(a, "up = '1MB/s'"))
	c.reload()
	require.EqualValues(t, 1e6, c.limit(pid))
	require.GreaterOrEqual(t, looks.Load(), int32(users)) // the kernel has told of the change, too
	require.Zero(t, early.Load(), "looks at homes before the rule was in force")
}

// The requests of users' own rules stay while a new source has read only the administrator's rules.
func TestUsersRulesStayUntilHomesAreSeen(t *testing.T) {
	testutil.RequireRoot(t)
	const user = 1_999_000_500
	a, b := name("a"), name("b")
	c := newHarness(t, rule(a, "up = '1MB/s'"), nil)
	pid := c.Run(b, user) // before the rules, as nobody tells of its exec
	c.WriteOwn(user, rule(b, "up = '3MB/s'"))
	c.eventually("a user's own rule", func() bool { return c.limit(pid) == 3e6 })
	c.stop()
	lifted := c.lifted
	var early atomic.Bool
	c.Write(rule(a, "up = '2MB/s'"))
	c.start(func(o *Options) {
		o.atHome = func(uint32) {
			if c.limit(pid) != 3e6 {
				early.Store(true)
			}
		}
	})
	c.eventually("the rules are read", c.HasRead)
	require.EqualValues(t, 3e6, c.limit(pid))
	require.False(t, early.Load())
	c.stop()
	require.Equal(t, lifted, c.lifted)
}

// A home that is late at every other look is logged once a minute at most, and at last with its present state.
func TestHomeThatIsLateAtTimes(t *testing.T) {
	var log testutil.Log
	var clock atomicTime
	clock.set(time.Unix(1e9, 0))
	s := New(Options{Log: log.Logger(t), Now: clock.get})
	look := func(late bool) {
		s.tellHanging(&homeLook{uid: 1, late: late})
		clock.set(clock.get().Add(time.Second))
	}
	lines := func() (hangs, answers int) {
		return log.Count("does not answer"), log.Count("answers again")
	}
	for range int(homeLinePause / time.Second / 2) {
		look(true)
		look(false)
	}
	hangs, answers := lines()
	require.Equal(t, [2]int{1, 0}, [2]int{hangs, answers})
	look(false)
	look(true)
	hangs, answers = lines()
	require.Equal(t, [2]int{1, 1}, [2]int{hangs, answers})
	for range 2 * int(homeLinePause/time.Second) {
		look(false)
	}
	require.Empty(t, s.homes.told)
}

// The problem of a home that does not answer from the start on is shown to its user and to root. The former requests of
// its user's rules stay until it answers.
func TestHomeThatHangsFromTheStart(t *testing.T) {
	testutil.RequireRoot(t)
	const user, other = 1_999_000_600, 1_999_000_601
	a := name("a")
	c := newHarness(t, "", nil)
	pid := c.Run(a, user)
	c.WriteOwn(user, rule(a, "up = '1MB/s'"))
	c.eventually("a user's own rule", func() bool { return c.limit(pid) == 1e6 })
	c.stop()
	home := c.Home(user)
	require.NoError(t, os.Remove(filepath.Join(home, ".config/netnice/netnice.toml")))

	until := make(chan struct{})
	answer := sync.OnceFunc(func() { close(until) })
	c.start(func(o *Options) { o.atHome = func(uint32) { <-until } })
	t.Cleanup(answer)
	problems := func(by uint32) (hanging int) {
		for _, p := range c.List(auth.Actor{UID: by}).Problems {
			require.Equal(t, hangs(home), p)
			hanging++
		}
		return hanging
	}
	c.eventually("root is told", func() bool { return problems(0) == 1 })
	require.Equal(t, 1, problems(user))
	require.Zero(t, problems(other))
	require.EqualValues(t, 1e6, c.limit(pid))
	answer()
	c.eventually("nothing is wrong any more", func() bool { return problems(0) == 0 })
	c.eventually("the file has gone, and so has the limit", func() bool { return c.limit(pid) == 0 })
}
