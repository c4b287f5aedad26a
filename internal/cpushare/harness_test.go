package cpushare

import (
	"context"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/cpushare/cpusharetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/statefile/statefiletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var root = auth.Actor{UID: 0}

// memory is a Host that keeps the state file in memory.
type memory struct {
	statefiletest.Memory[Saved, *Saved]

	mu   sync.Mutex
	sent uint64 // by each process
}

func (m *memory) SentBytes(int, uint64) (bytes uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent, true
}

// sends sets how much each process has sent.
func (m *memory) sends(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = bytes
}

func (m *memory) Unwritten(bool) []string                      { return nil }
func (m *memory) CountsAs(uid uint32) uint32                   { return uid }
func (m *memory) MustStayIn(auth.Actor, string, string) string { return "" }
func (m *memory) Publish([2]uint32, func() api.Event)          {}
func (m *memory) ProgramDue()                                  {}

// noSystemd is a machine without systemd.
type noSystemd struct{ identity.SystemBus }

func (noSystemd) Running() bool { return false }

// harness is a table with fake processors.
type harness struct {
	*Table
	t    *testing.T
	host *memory
	fake *cpusharetest.Processors
	stop func() // stop ends the table as the end of a daemon does; the shares stay
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	return startTable(t, &memory{}, cpusharetest.New())
}

// startTable starts a table that takes over what another one has left.
func startTable(t *testing.T, host *memory, fake *cpusharetest.Processors) *harness {
	t.Helper()
	resolver, err := identity.New(identity.Options{CgroupRoot: t.TempDir(), Systemd: noSystemd{}})
	require.NoError(t, err)
	table := New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Resolver: resolver, BootID: "boot", Host: host,
		Open: func(cpu.Scopes) (Processors, error) { return fake, nil },
	})
	require.NoError(t, table.Adopt(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	var keeper sync.WaitGroup
	keeper.Go(func() { table.Keep(ctx) })
	stop := sync.OnceFunc(func() {
		cancel()
		keeper.Wait()
		table.StopWatching()
	})
	t.Cleanup(stop)
	return &harness{Table: table, t: t, host: host, fake: fake, stop: stop}
}

func (h *harness) power(by auth.Actor, pid, n int) (api.PowerResponse, error) {
	h.t.Helper()
	return h.Set(context.Background(), by, api.PowerRequest{PID: pid, Power: n})
}

func (h *harness) mustPower(by auth.Actor, pid, n int) api.Power {
	h.t.Helper()
	answer, err := h.power(by, pid, n)
	require.NoError(h.t, err)
	require.NotNil(h.t, answer.Power)
	return *answer.Power
}

// dirOf returns the group of the last process, inside those of the others.
func dirOf(pids ...int) (dir string) {
	for _, pid := range pids {
		dir += "/" + strconv.Itoa(pid)
	}
	return dir
}

// sleeper starts a process that sleeps and ends with the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	return cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// nested starts a shell with a child. Both sleep; the shell outlives the child.
func nested(t *testing.T) (outer, inner int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait; exec sleep 60")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	require.NoError(t, err)
	inner, err = strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = unix.Kill(inner, unix.SIGKILL)
		end(cmd)
	})
	return cmd.Process.Pid, inner
}
