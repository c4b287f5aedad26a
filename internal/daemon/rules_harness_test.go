package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// clerk is a harness with rules and programs of its own.
type clerk struct {
	*harness
	dir   string // folder of the system's rules
	bin   string
	homes map[uint32]string
}

// name returns a program name that no other process of the machine has.
func name(what string) string { return fmt.Sprintf("nn%d%s", os.Getpid()%100000, what) }

func newClerk(t *testing.T, fake *enforcetest.Kernel, text string, change func(*Options)) *clerk {
	t.Helper()
	opts := testOptions(t, fake)
	c := &clerk{dir: filepath.Join(opts.StateDir, "..", "rules"), bin: filepath.Join(opts.StateDir, "..", "bin"), homes: map[uint32]string{}}
	require.NoError(t, os.MkdirAll(c.dir, 0o755))
	require.NoError(t, os.MkdirAll(c.bin, 0o755))
	opts.RulesDir = c.dir
	opts.Homes = func() (map[uint32]string, error) { return c.homes, nil }
	if change != nil {
		change(&opts)
	}
	c.harness = &harness{t: t, opts: opts}
	c.write(text)
	c.harness = start(t, fake, opts)
	c.eventually("the rules are read", c.haveRead)
	return c
}

func (c *clerk) haveRead() bool {
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	return c.rules.read
}

func (c *clerk) write(text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, "netnice.toml")
	require.NoError(c.t, os.WriteFile(path+".new", []byte(text), 0o644))
	require.NoError(c.t, os.Rename(path+".new", path))
}

// runs starts a program of that name. The daemon is not told of its exec.
func (c *clerk) runs(name string, uid uint32) int {
	c.t.Helper()
	path := filepath.Join(c.bin, name)
	if _, err := os.Stat(path); err != nil {
		sleep, err := exec.LookPath("sleep")
		require.NoError(c.t, err)
		// Another process copies the file: processes that are started meanwhile would inherit this process's writable
		// descriptor.
		require.NoError(c.t, exec.Command("cp", sleep, path).Run())
	}
	cmd := exec.Command(path, "60")
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() { end(cmd) })
	return cmd.Process.Pid
}

func (c *clerk) started(name string) int {
	c.t.Helper()
	pid := c.runs(name, 0)
	c.fake.Exec(pid)
	c.settled()
	return pid
}

// settled waits until the daemon has handled all earlier events.
func (c *clerk) settled() {
	c.fake.Exec(1 << 30) // taken when the daemon has handled the events before it
	c.fake.Exec(1 << 30)
}

// limit returns the lowest rate in force for a process on its own node; 0 = none.
func (c *clerk) limit(pid int) uint64 {
	c.t.Helper()
	specs, err := c.fake.Nodes()
	require.NoError(c.t, err)
	for _, s := range specs {
		if s.Kind == enforce.KindTree && s.Subject == uint64(pid) {
			rate := adminUp(s)
			if own := s.Ceilings[enforce.OwnerUser][enforce.Up].BytesPerSec; own != 0 && (rate == 0 || own < rate) {
				rate = own
			}
			return rate
		}
	}
	return 0
}

func (c *clerk) reload() api.RuleList {
	c.t.Helper()
	list, err := c.ReloadRules(context.Background(), root)
	require.NoError(c.t, err)
	return list
}

func rule(program, rest string) string {
	return fmt.Sprintf("[[rule]]\nname = '%s'\nprogram = '%[1]s'\n%s\n", program, rest)
}
