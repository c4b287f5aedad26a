package daemon

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// logText is what a daemon has logged.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), l), nil))
}

// count is how often something was logged.
func (l *logText) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// Homes that do not answer keep neither others' rules from being read nor anybody waiting, and are told once.
func TestHomesThatDoNotAnswer(t *testing.T) {
	testutil.RequireRoot(t)
	const firstStuck, stuck, firstUser, users = 1_999_000_100, 20, 1_999_000_200, 20
	const notAnswering = `stay" uid=19990001` // of those who are stuck
	var log logText
	var hang, locked atomic.Bool
	var daemon atomic.Pointer[Daemon]
	until := make(chan struct{})
	answer := sync.OnceFunc(func() { close(until) })
	c := newClerk(t, new(enforcetest.Kernel), "", func(o *Options) {
		o.Logger = log.logger(t)
		o.atHome = func(uid uint32) {
			if hang.Load() && uid >= firstStuck && uid < firstStuck+stuck {
				<-until
				return
			}
			if d := daemon.Load(); d != nil && !getsFree(&d.rules.mu) {
				locked.Store(true)
			}
		}
	})
	t.Cleanup(answer)
	daemon.Store(c.Daemon)
	count := func() (rules, problems int) {
		list, err := c.Rules(context.Background(), root)
		require.NoError(t, err)
		for _, p := range list.Problems {
			require.Contains(t, p.Message, "does not answer")
		}
		return len(list.Rules), len(list.Problems)
	}
	for i := range uint32(stuck) {
		c.ownRules(firstStuck+i, rule("x", "up = '1MB/s'"))
	}
	c.eventually("all are read", func() bool { rules, _ := count(); return rules == stuck })
	hang.Store(true)
	for i := range uint32(users) {
		c.ownRules(firstUser+i, rule("y", "up = '1MB/s'"))
	}
	c.eventually("those who answer are read, and the others' rules stay", func() bool {
		rules, problems := count()
		return rules == stuck+users && problems == stuck
	})
	time.Sleep(20 * c.opts.Tick)
	require.Equal(t, stuck, log.count(notAnswering), "each is told once")
	hang.Store(false)
	answer()
	c.eventually("they answer again", func() bool { _, problems := count(); return problems == 0 })
	c.eventually("that is told", func() bool { return log.count("a home folder answers again") >= stuck })
	require.False(t, locked.Load(), "the lock on the rules is held while homes are looked at")
}

// Of a home that is slow each time the rules are read all the same, and it is told once.
func TestSlowHome(t *testing.T) {
	testutil.RequireRoot(t)
	const user = 1_999_000_300
	var log logText
	var looks atomic.Int32
	c := newClerk(t, new(enforcetest.Kernel), "", func(o *Options) {
		o.Logger = log.logger(t)
		o.atHome = func(uint32) {
			looks.Add(1)
			time.Sleep(filePatience + 50*time.Millisecond)
		}
	})
	c.ownRules(user, rule("x", "up = '1MB/s'"))
	c.eventually("its rules are read", func() bool {
		list, err := c.Rules(context.Background(), root)
		return err == nil && len(list.Rules) == 1 && looks.Load() >= 4
	})
	require.Equal(t, 1, log.count("a home folder does not answer"))
}

// getsFree reports whether nobody holds a lock for as long as a look waits for a home.
func getsFree(lock *sync.Mutex) bool {
	for until := time.Now().Add(filePatience / 2); time.Now().Before(until); time.Sleep(poll) {
		if lock.TryLock() {
			lock.Unlock()
			return true
		}
	}
	return false
}

// A look ends in time although homes do not answer, and there are no more of these than may be.
func TestLookAtManyHomes(t *testing.T) {
	var log logText
	until := make(chan struct{})
	d := &Daemon{log: log.logger(t), opts: Options{atHome: func(uint32) { <-until }}}
	h := &d.rules.homes
	h.hanging, h.told = make(map[uint32]*homeLook), make(map[uint32]bool)
	home := t.TempDir()
	look := func(first uint32) {
		t.Helper()
		var list []*homeLook
		for i := range uint32(100 * homesAtOnce) {
			list = append(list, &homeLook{uid: first + i, home: home})
		}
		began := time.Now()
		require.Empty(t, d.seeHomes(list))
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
	require.Equal(t, 1, log.count("so many home folders"))
	close(until)
	for _, l := range h.hanging {
		<-l.done
	}
}
