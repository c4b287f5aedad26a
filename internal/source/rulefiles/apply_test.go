package rulefiles

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

const mallory = 1017

// compiled returns a rule set from the text of a file.
func compiled(t *testing.T, text string) *rules.Set {
	t.Helper()
	list, err := rules.Parse("f", []byte(text), rules.Context{})
	require.NoError(t, err)
	return rules.Compile(list)
}

// decided returns a source with these rules of the administrator's and mallory's. It reads no files.
func decided(t *testing.T, administrators, mallorys string) *Source {
	t.Helper()
	s := New(Options{Host: new(memory), Now: time.Now})
	s.read, s.system.set = true, compiled(t, administrators)
	s.users[mallory] = &ownerFiles{uid: mallory, set: compiled(t, mallorys)}
	return s
}

// matches returns what the rules request of a process of mallory's that runs a program.
func (s *Source) matches(program string) Process {
	const pid = 7
	f := &desired.Facts{Exe: "/bin/" + program, Comm: program, User: mallory}
	res := identity.Resolved{Subject: identity.PIDSubject(int(pid)), Kind: enforce.KindTree, Key: pid, StartBoottimeNS: identity.TickNS, UID: mallory}
	return s.process(res, f, s.match(f, s.opts.Now()), s.opts.Now())
}

// The lowest rate of each direction, the lowest weight and the highest guarantee hold. A rate names its rule.
func TestRulesAreCombined(t *testing.T) {
	s := decided(t, `
[[rule]]
name = "one"
program = "a"
up = "2MB/s"
down = "1MB/s"
also = true
[[rule]]
name = "two"
program = "a"
up = "1MB/s"
weight = 30
also = true
[[rule]]
name = "nothing"
program = "a"
up = "none"
also = true
`, "")
	admin := s.matches("a").Own(desired.Rules{}, nil).Owners[enforce.OwnerAdmin]
	require.EqualValues(t, 1e6, admin.Wish.Up)
	require.EqualValues(t, 1e6, admin.Wish.Down)
	require.EqualValues(t, 30, admin.Wish.Weight)
	require.Equal(t, "two", admin.From[enforce.Up].Name)
	require.Equal(t, "one", admin.From[enforce.Down].Name)
	require.Len(t, admin.Rules, 2, "a rule that limits nothing counts for none")
}

// If none of an owner's rules matches, what that owner's rules requested before stays as long as they still do, by the
// facts of then. So a user does not leave the administrator's limit by a program that only their own rule matches.
func TestRequestsOfAnotherOwnerStay(t *testing.T) {
	s := decided(t, rule("a", "up = '1MB/s'"), rule("b", "up = '8GB/s'"))
	first := s.matches("a")
	require.False(t, first.UsersMatch)
	before := first.Own(desired.Rules{}, nil)
	second := s.matches("b")
	require.True(t, second.UsersMatch)
	next := second.Own(before, nil)
	require.EqualValues(t, 1e6, next.Owners[enforce.OwnerAdmin].Wish.Up)
	require.Equal(t, "a", next.Owners[enforce.OwnerAdmin].Facts.Comm)
	require.EqualValues(t, 8e9, next.Owners[enforce.OwnerUser].Wish.Up)
	require.Equal(t, "b", next.Owners[enforce.OwnerUser].Facts.Comm)
	require.True(t, next.Same(s.review(mallory, next, time.Now())), "a review changes nothing")

	s.system.set = compiled(t, rule("a", "up = '2MB/s'"))
	require.EqualValues(t, 2e6, s.review(mallory, next, time.Now()).Owners[enforce.OwnerAdmin].Wish.Up)
	s.system.set = compiled(t, "")
	require.True(t, s.review(mallory, next, time.Now()).Owners[enforce.OwnerAdmin].Empty())
	s.system.set = nil
	require.EqualValues(t, 1e6, s.review(mallory, next, time.Now()).Owners[enforce.OwnerAdmin].Wish.Up, "not known: unchanged")
}

// A rule that holds for a tree around a process requests nothing of the process's own node.
func TestRulesOfTreesAround(t *testing.T) {
	s := decided(t, rule("a", "up = '1MB/s'"), "")
	p := s.matches("a")
	tree := p.Own(desired.Rules{}, nil)
	require.True(t, p.Own(desired.Rules{}, []desired.Rules{tree}).Empty())
	require.False(t, p.Own(desired.Rules{}, []desired.Rules{{}}).Empty())
}

// A rule for all together requests nothing of a process's own node. Its node has a subject that names no process.
func TestSharedRules(t *testing.T) {
	s := decided(t, rule("a", "up = '1MB/s'\nshare = 'all'"), rule("a", "up = '2MB/s'\nshare = 'all'"))
	p := s.matches("a")
	require.True(t, p.Own(desired.Rules{}, nil).Empty())
	require.Len(t, p.Shared, 2)
	require.Equal(t, enforce.OwnerAdmin, p.Shared[0].Owner)
	require.EqualValues(t, 1e6, p.Shared[0].Request.Wish.Up)
	require.Equal(t, enforce.OwnerUser, p.Shared[1].Owner)
	require.Empty(t, p.Instead, "they share a node anyway")
	of := p.Shared[0].Subject(0, 0)
	require.Equal(t, api.Subject{Kind: api.KindRule, ID: "a"}, of.Subject)
	require.Equal(t, of, p.Shared[0].Subject(0, 0))
	require.NotEqual(t, of.StartBoottimeNS, p.Shared[0].Subject(5, 0).StartBoottimeNS, "inside another tree it is another")

	before := desired.Rules{Shared: p.Shared[0].Key, Owners: [enforce.Owners]desired.OwnerRules{p.Shared[0].Request}}
	require.True(t, before.Same(s.review(0, before, time.Now())))
	s.system.set = compiled(t, rule("a", "up = '3MB/s'"))
	require.True(t, s.review(0, before, time.Now()).Empty(), "it is for each now")
}

// Where a process may have no node of its own, the administrator's rules hold for such processes together.
func TestRulesInsteadOfAnOwnNode(t *testing.T) {
	const text = "up = '1MB/s'\nalso = true"
	s := decided(t, rule("a", text)+"[[rule]]\nname = 'to'\nprogram = 'a'\nport = 443\nup = 'none'\n", rule("a", "up = '2MB/s'"))
	p := s.matches("a")
	require.True(t, p.IsDestined)
	require.Len(t, p.Instead, 2)
	require.EqualValues(t, 1e6, p.Instead[0].Request.Wish.Up)
	require.Len(t, p.Instead[1].Request.To, 1)
	host := s.opts.Host.(*memory)
	host.full = true
	_, ok := host.Apply(p)
	require.False(t, ok)
	require.Len(t, host.shared, 2)
}

// The host learns of each exec by itself, and whether rules are for a part of the traffic.
func TestProcessAfterExec(t *testing.T) {
	a, b := name("a"), name("b")
	c := newHarness(t, rule(a, "up = '1MB/s'")+rule(b, "port = 443\nup = '1MB/s'"), nil)
	last := func() Process {
		c.memory.mu.Lock()
		defer c.memory.mu.Unlock()
		return c.last
	}
	for _, program := range []string{a, b} {
		pid := c.started(program)
		p := last()
		require.EqualValues(t, pid, p.Key)
		require.NotNil(t, p.Exec)
		require.EqualValues(t, pid, p.Exec.PID)
		require.Equal(t, program == b, p.IsDestined)
		c.reload()
		require.Nil(t, last().Exec, "by a look at all processes")
	}
}
