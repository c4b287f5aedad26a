package daemon

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/source/rulefiles/rulefilestest"
)

var name, rule = rulefilestest.Program, rulefilestest.Rule

// clerk is a harness with files of rules.
type clerk struct {
	*harness
	*rulefilestest.Files
}

func newClerk(t *testing.T, fake *enforcetest.Kernel, text string, change func(*Options)) *clerk {
	t.Helper()
	opts := testOptions(t, fake)
	c := &clerk{Files: rulefilestest.New(t, filepath.Dir(opts.StateDir))}
	opts.RulesDir, opts.Homes = c.System(), c.Homes
	if change != nil {
		change(&opts)
	}
	c.Write(text)
	c.harness = start(t, fake, opts)
	c.eventually("the rules are read", c.haveRead)
	return c
}

func (c *clerk) haveRead() bool { return c.rules.HasRead() }

func (c *clerk) started(name string) int {
	c.t.Helper()
	pid := c.Run(name, 0)
	c.fake.Exec(pid)
	c.settled()
	return pid
}

// settled waits until the daemon has handled all earlier events.
func (c *clerk) settled() {
	c.fake.Exec(1 << 30) // taken when the daemon has handled the events before it
	c.fake.Exec(1 << 30)
}

// spec returns a process's own node in force; the zero value: it has none.
func (c *clerk) spec(pid int) enforce.NodeSpec {
	c.t.Helper()
	return c.of(enforce.KindTree)[uint64(pid)]
}

// limit returns the lowest rate in force for a process on its own node; 0 = none.
func (c *clerk) limit(pid int) uint64 {
	c.t.Helper()
	rate := c.admins(pid)
	if own := c.own(pid); own != 0 && (rate == 0 || own < rate) {
		rate = own
	}
	return rate
}

// admins returns the administrator's part of limit.
func (c *clerk) admins(pid int) uint64 {
	c.t.Helper()
	return adminUp(c.spec(pid))
}

// own returns the user's part of limit.
func (c *clerk) own(pid int) uint64 {
	c.t.Helper()
	return c.spec(pid).Ceilings[enforce.OwnerUser][enforce.Up].BytesPerSec
}

func (c *clerk) reload() api.RuleList {
	c.t.Helper()
	list, err := c.ReloadRules(context.Background(), root)
	require.NoError(c.t, err)
	return list
}
