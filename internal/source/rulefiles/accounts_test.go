package rulefiles

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/account/accounttest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
)

// use makes a source use the accounts and the clock of a test.
func use(t *testing.T, l *accounttest.Late, o *Options) {
	t.Helper()
	resolver, err := identity.New(identity.Options{CgroupRoot: t.TempDir(), Accounts: l.Accounts})
	require.NoError(t, err)
	o.Resolver, o.Now = resolver, l.Now
}

const rulesOfBob = "[[rule]]\nname = 'bobs'\nprogram = 'none-is-called-so'\nuser = 'bob'\nup = '1MB/s'\n"

// Rules may name users of a directory. No reading of the rules waits for the directory: the source asks one that comes
// up later again.
func TestRulesNameUsersOfADirectory(t *testing.T) {
	l := accounttest.NewLate(t)
	c := newHarness(t, rulesOfBob, func(o *Options) { use(t, l, o) })
	c.eventually("that he is not known", func() bool {
		list := c.List(root)
		return len(list.Problems) == 1 && list.Problems[0].Message == `no user is called "bob"`
	})
	l.ComeUp()
	c.eventually("the rules hold without anybody's doing", func() bool {
		l.Forward(account.MissingPause)
		list := c.List(root)
		return len(list.Problems) == 0 && len(list.Rules) == 1
	})
}

// The answer to a reload of the rules includes the directory's answer about its users.
func TestReloadLooksUsersUp(t *testing.T) {
	l := accounttest.NewLate(t)
	c := newHarness(t, "", func(o *Options) { use(t, l, o) })
	l.ComeUp()
	c.Write(rulesOfBob)
	list := c.reload()
	require.Empty(t, list.Problems)
	require.Len(t, list.Rules, 1)
}

// The log names a misspelt user in the rules once, although the source asks the directory again each minute.
func TestMisspeltUserIsToldOnce(t *testing.T) {
	l, log := accounttest.NewLate(t), new(testutil.Log)
	const refused = "rules are not in force"
	c := newHarness(t, rulesOfBob, func(o *Options) {
		use(t, l, o)
		o.Log = log.Logger(t)
	})
	c.eventually("it is told", func() bool { return log.Count(refused) == 1 })
	for range 4 {
		l.Forward(account.MissingPause)
		time.Sleep(400 * time.Millisecond) // the answer is too old by then
	}
	require.Equal(t, 1, log.Count(refused))
	c.Write("# changed\n" + rulesOfBob)
	c.eventually("it is told of files that have changed", func() bool { return log.Count(refused) == 2 })
}

// A directory hangs, and the rules name more users than are looked up at a time. The source still reports that
// these rules are not in force.
func TestRulesOfADirectoryThatHangs(t *testing.T) {
	l, log := accounttest.NewCrowded(t), new(testutil.Log)
	const refused = "rules are not in force"
	var users []string
	for i := range accounttest.Crowd {
		users = append(users, fmt.Sprintf("'u%d'", i+1))
	}
	text := "[[rule]]\nname = 'crowd'\nprogram = 'none-is-called-so'\nuser = [" + strings.Join(users, ", ") + "]\nup = '1MB/s'\n"
	c := newHarness(t, text, func(o *Options) {
		use(t, l, o)
		o.Log = log.Logger(t)
	})
	c.eventually("it is told", func() bool {
		l.Forward(time.Second)
		list := c.List(root)
		return len(list.Problems) > 0 && strings.Contains(list.Problems[0].Message, "the name service does not answer")
	})
	for range 20 {
		l.Forward(account.MissingPause)
		time.Sleep(2 * c.opts.Tick)
	}
	require.Equal(t, 1, log.Count(refused))
	l.ComeUp()
	c.eventually("the rules hold when it answers", func() bool {
		l.Forward(time.Second)
		list := c.List(root)
		return len(list.Problems) == 0 && len(list.Rules) == 1
	})
}
