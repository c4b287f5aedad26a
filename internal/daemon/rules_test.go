package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/testutil"
)

func TestRulesAtExecAndReload(t *testing.T) {
	a, b := name("a"), name("b")
	c := newClerk(t, new(enforcetest.Kernel), "", nil)
	require.False(t, c.fake.Follows(), "nothing is followed without rules")
	early := c.Run(a, 0)
	c.Write(rule(a, "up = '1MB/s'"))
	require.Equal(t, 0, c.count())
	c.reload()
	require.True(t, c.fake.Follows())
	require.EqualValues(t, 1e6, c.limit(early), "what runs already")
	late, other := c.started(a), c.started(b)
	require.EqualValues(t, 1e6, c.limit(late))
	require.Zero(t, c.limit(other))

	// A new rate changes limits in place, and a file with an error changes nothing.
	sets := c.fake.Calls("set")
	c.Write(rule(a, "up = '2MB/s'"))
	list := c.reload()
	require.Empty(t, list.Problems)
	require.Equal(t, 2, list.Rules[0].Nodes)
	require.EqualValues(t, 2e6, c.limit(early))
	require.EqualValues(t, 2e6, c.limit(late))
	require.Equal(t, sets+2, c.fake.Calls("set"))
	require.Zero(t, c.fake.Calls("RemoveNode"))
	c.Write("[[rule]]\n" + rule(a, "up = '3MB/s'"))
	list = c.reload()
	require.NotEmpty(t, list.Problems)
	require.Equal(t, 1, list.Problems[0].Line)
	require.EqualValues(t, 2e6, c.limit(late))

	// A changed file is read without a request, too.
	c.Write(rule(a, "up = '4MB/s'") + rule(b, "up = '5MB/s'"))
	c.eventually("a changed file is read", func() bool { return c.limit(late) == 4e6 && c.limit(other) == 5e6 })

	// One rule is left.
	c.Write(rule(b, "up = '5MB/s'"))
	c.reload()
	require.Zero(t, c.limit(late))
	require.EqualValues(t, 5e6, c.limit(other))
	require.NoError(t, os.Remove(filepath.Join(c.System(), "netnice.toml")))
	c.reload()
	require.Equal(t, 0, c.count())
	require.False(t, c.fake.Follows())
}

// A limit set by a command comes before that of a rule.
func TestRulesAndCommands(t *testing.T) {
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'\ndown = '3MB/s'"), nil)
	pid := c.started(a)
	subject := fmt.Sprint("pid:", pid)
	nodes, err := c.nodesFor(subject)
	require.NoError(t, err)
	require.Equal(t, &api.RuleOrigin{Name: a, File: filepath.Join(c.System(), "netnice.toml"), Line: 1}, nodes[0].Limits[0].Rule)

	node := c.mustSet(root, subject, up(5e6))
	require.EqualValues(t, 5e6, c.limit(pid))
	require.Len(t, node.Limits, 2)
	require.Nil(t, node.Limits[0].Rule)
	require.NotNil(t, node.Limits[1].Rule, "of what the command does not say")

	// After the command's limit was lifted, the rule's is in force again, and stays.
	answer, err := c.remove(root, subject)
	require.NoError(t, err)
	require.True(t, answer.Changed)
	require.EqualValues(t, 1e6, c.limit(pid))
	require.Contains(t, strings.Join(answer.Warnings, " "), "netnice.toml:1")
	answer, err = c.remove(root, subject)
	require.NoError(t, err)
	require.False(t, answer.Changed)
	require.EqualValues(t, 1e6, c.limit(pid))
	answer, err = c.set(root, subject, up(0))
	require.NoError(t, err)
	require.Contains(t, strings.Join(answer.Warnings, " "), "netnice.toml:1")

	// The other way round: the command's limit stays when the rule goes.
	c.mustSet(root, subject, up(5e6))
	c.Write("")
	c.reload()
	require.EqualValues(t, 5e6, c.limit(pid))
	_, err = c.set(root, "rule:"+a, up(1e6))
	testutil.RequireCode(t, api.CodeBadRequest, err)
}

// The next daemon knows the limits of rules, and that rules had set them.
func TestRulesOutliveTheDaemon(t *testing.T) {
	a, b := name("a"), name("b")
	fake := new(enforcetest.Kernel)
	var opts Options
	c := newClerk(t, fake, rule(a, "up = '1MB/s'")+rule(b, "up = '1MB/s'\nshare = 'all'"), func(o *Options) { opts = *o })
	pid, one := c.started(a), c.started(b)
	require.Equal(t, 2, c.count())
	require.NoError(t, c.stop())

	// The file is wrong at the start: the limits in force stay.
	c.Write("[[rule]]")
	c.harness = start(t, fake, opts)
	c.eventually("the rules are read", c.haveRead)
	require.EqualValues(t, 1e6, c.limit(pid))
	require.Equal(t, 2, c.count())
	require.Len(t, fake.Trees(one), 1)
	require.NoError(t, c.stop())

	removed := fake.Calls("RemoveNode")
	c.Write(rule(a, "up = '2MB/s'") + rule(b, "up = '2MB/s'\nshare = 'all'"))
	c.harness = start(t, fake, opts)
	c.eventually("the rules are read", func() bool { return c.limit(pid) == 2e6 })
	require.Equal(t, removed, fake.Calls("RemoveNode"))
	require.Equal(t, 2, c.count())
	require.NoError(t, c.stop())

	c.Write("")
	c.harness = start(t, fake, opts)
	c.eventually("rules that went meanwhile", func() bool { return c.count() == 0 })
}

// A process inside the tree of the same rule has no limit of its own. A process that becomes another program keeps its
// limits.
func TestRulesInATree(t *testing.T) {
	a, b := name("a"), name("b")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'")+rule(b, "up = '2MB/s'"), nil)
	outer := c.started(a)
	id := c.fake.Trees(outer)[0]
	inner, other := c.Run(a, 0), c.Run(b, 0)
	c.fake.SetTrees(inner, id)
	c.fake.SetTrees(other, id)
	c.fake.Exec(inner)
	c.fake.Exec(other)
	c.settled()
	require.Zero(t, c.limit(inner), "its limit is that of the tree")
	require.EqualValues(t, 2e6, c.limit(other))

	// The shell becomes sleep, for which there is no rule.
	shell := exec.Command("bash", "-c", "read; exec sleep 60")
	in, err := shell.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	t.Cleanup(func() { end(shell) })
	c.Write(rule("bash", fmt.Sprintf("user = %d\ncommand = 'bash -c read; exec*'\nup = '3MB/s'", os.Getuid())) + rule(a, "up = '1MB/s'"))
	c.reload()
	pid := shell.Process.Pid
	require.EqualValues(t, 3e6, c.limit(pid))
	_, err = in.Write([]byte("\n"))
	require.NoError(t, err)
	c.eventually("it is sleep", func() bool { path, _, _ := c.resolver.Program(pid); return !strings.HasSuffix(path, "bash") })
	c.fake.Exec(pid)
	c.settled()
	c.reload()
	require.EqualValues(t, 3e6, c.limit(pid), "nobody leaves a limit by exec")
}

func TestRulesForAllTogether(t *testing.T) {
	a := name("a")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'\nshare = 'all'"), nil)
	one, two := c.started(a), c.started(a)
	require.Equal(t, 1, c.count())
	require.Equal(t, c.fake.Trees(one), c.fake.Trees(two))
	shared := c.fake.Trees(one)[0]
	nodes, err := c.nodesFor("rule:" + a)
	require.NoError(t, err)
	require.Equal(t, "rule:"+a, nodes[0].Subject.String())

	// A process in a tree with a limit gets a node of its own, inside that tree.
	outer := c.Run(name("b"), 0)
	node := c.mustSet(root, fmt.Sprint("pid:", outer), up(1e5))
	three := c.Run(a, 0)
	c.fake.SetTrees(three, node.ID)
	c.fake.Exec(three)
	c.settled()
	trees := c.fake.Trees(three)
	require.Len(t, trees, 2)
	require.NotContains(t, trees, shared)
	spec, _ := c.fake.Spec(trees[1])
	require.Equal(t, node.ID, spec.Parent)

	// With other conditions the matching processes get a new node, and the old one goes.
	c.Write(rule(a, fmt.Sprintf("user = %d\nup = '1MB/s'\nshare = 'all'", os.Getuid())))
	c.reload()
	require.NotContains(t, c.fake.Trees(one), shared)
	require.Equal(t, c.fake.Trees(one), c.fake.Trees(two))
	require.Len(t, c.fake.Trees(one), 1)
	// The node goes with its last member.
	id := c.fake.Trees(one)[0]
	c.fake.SetStats(enforce.NodeStats{ID: id})
	c.eventually("nobody is in it", c.gone(id))
}

// A user's own rules are for their processes, and the lower of two limits holds.
func TestUsersOwnRules(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("starts processes of other users")
	}
	a, b := name("a"), name("b")
	const bob, eve = 1_999_000_001, 1_999_000_002
	home := t.TempDir()
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '2MB/s'"), func(*Options) {})
	bobs, eves := c.Run(b, bob), c.Run(b, eve)
	both := c.Run(a, bob)
	path := filepath.Join(home, rules.OfUser)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(rule(b, "up = '3MB/s'")+rule(a, "up = '1MB/s'")), 0o600))
	c.AddHome(bob, home)
	c.eventually("a file that is not his is told", func() bool {
		list, err := c.Rules(context.Background(), auth.Actor{UID: bob})
		return err == nil && len(list.Problems) == 1 && strings.Contains(list.Problems[0].Message, "belongs to uid 0")
	})
	require.NoError(t, os.Chown(path, bob, bob))
	c.eventually("a user's own rule", func() bool { return c.limit(bobs) == 3e6 })
	require.Zero(t, c.limit(eves))
	c.eventually("the lower holds", func() bool { return c.limit(both) == 1e6 })
	nodes, err := c.nodesFor(fmt.Sprint("pid:", both))
	require.NoError(t, err)
	require.Len(t, nodes[0].Limits, 2)

	// Other users see neither the file nor its content.
	list, err := c.Rules(context.Background(), auth.Actor{UID: eve})
	require.NoError(t, err)
	require.Len(t, list.Rules, 1)
	_, err = c.TestRules(context.Background(), auth.Actor{UID: eve}, bobs)
	testutil.RequireCode(t, api.CodeDenied, err)
	answer, err := c.TestRules(context.Background(), auth.Actor{UID: bob}, bobs)
	require.NoError(t, err)
	require.Len(t, answer.Rules, 3)
	require.True(t, answer.Rules[1].Holds)
	require.Equal(t, "program", answer.Rules[0].Differs)

	// A symbolic link in the user's home is not followed.
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/etc/passwd", path))
	c.eventually("a link is told", func() bool {
		list, err := c.Rules(context.Background(), auth.Actor{UID: bob})
		return err == nil && len(list.Problems) == 1 && strings.Contains(list.Problems[0].Message, "symbolic link")
	})
	require.EqualValues(t, 3e6, c.limit(bobs), "what was right before stays")
	require.NoError(t, os.Remove(path))
	c.eventually("his rules are gone", func() bool { return c.limit(bobs) == 0 && c.limit(both) == 2e6 })
}

// A daemon on demand follows no rules, and says so.
func TestRulesNeedADaemonThatStays(t *testing.T) {
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.OnDemand, opts.RulesDir, opts.FirstWait = true, t.TempDir(), time.Minute
	h := start(t, fake, opts)
	_, err := h.ReloadRules(context.Background(), root)
	testutil.RequireCode(t, api.CodeConflict, err)
	list, err := h.Rules(context.Background(), root)
	require.NoError(t, err)
	require.False(t, list.Followed)
	require.False(t, fake.Follows())
}

// The requests of a user's own rules survive a restart. They stay in force while the next daemon has not seen the home,
// although it has reviewed the administrator's rules by then, and after it has.
func TestUsersRulesOutliveTheDaemon(t *testing.T) {
	testutil.RequireRoot(t)
	const user = 1_999_000_500
	a, b := name("a"), name("b")
	var opts Options
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'"), func(o *Options) { opts = *o })
	ofAdmin, pid := c.started(a), c.Run(b, user)
	c.WriteOwn(user, rule(b, "up = '3MB/s'"))
	c.eventually("a user's own rule", func() bool { return c.own(pid) == 3e6 })
	require.NoError(t, c.stop())
	removed := c.fake.Calls("RemoveNode")

	c.Write(rule(a, "up = '2MB/s'"))
	wanted, until := make(chan struct{}), make(chan struct{})
	want, answer := sync.OnceFunc(func() { close(wanted) }), sync.OnceFunc(func() { close(until) })
	opts.Homes = func() (map[uint32]string, error) {
		want()
		<-until
		return c.Homes()
	}
	c.harness = start(t, c.fake, opts)
	t.Cleanup(answer)
	select {
	case <-wanted:
	case <-time.After(soon):
		require.Fail(t, "no home is looked at")
	}
	require.EqualValues(t, 2e6, c.limit(ofAdmin), "the administrator's rules are reviewed before any home is looked at")
	require.EqualValues(t, 3e6, c.own(pid), "the home is not seen yet")
	answer()
	c.eventually("the rules are read", c.haveRead)
	list, err := c.Rules(t.Context(), auth.Actor{UID: user})
	require.NoError(t, err)
	require.Len(t, list.Rules, 2)
	require.EqualValues(t, 3e6, c.own(pid))
	require.Zero(t, c.admins(pid), "no limit was adopted as the administrator's")
	c.WriteOwn(user, rule(b, "up = '4MB/s'"))
	c.eventually("the rule holds on", func() bool { return c.own(pid) == 4e6 })
	require.Equal(t, removed, c.fake.Calls("RemoveNode"))
}
