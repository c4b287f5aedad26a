package daemon

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/cpushare/cpusharetest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

func powerHarness(t *testing.T, change ...func(*Options)) (*harness, *cpusharetest.Processors) {
	t.Helper()
	fake, kernel := cpusharetest.New(), &enforcetest.Kernel{}
	opts := testOptions(t, kernel)
	opts.OpenProcessors = func(cpu.Scopes) (cpushare.Processors, error) { return fake, nil }
	for _, f := range change {
		f(&opts)
	}
	return start(t, kernel, opts), fake
}

func (h *harness) power(by auth.Actor, pid, n int) (api.PowerResponse, error) {
	h.t.Helper()
	return h.SetPower(context.Background(), by, api.PowerRequest{PID: pid, Power: n})
}

func (h *harness) mustPower(by auth.Actor, pid, n int) api.Power {
	h.t.Helper()
	answer, err := h.power(by, pid, n)
	require.NoError(h.t, err)
	require.NotNil(h.t, answer.Power)
	return *answer.Power
}

// holdCPUShares keeps the lock of the CPU shares until release is called.
func (h *harness) holdCPUShares() (release func()) {
	held, done := make(chan struct{}), make(chan struct{})
	go h.cpuShares.Rewrite(func(func()) {
		close(held)
		<-done
	})
	<-held
	return sync.OnceFunc(func() { close(done) })
}

// Changes of CPU shares are published like changes of limits, and the shares are listed with the limits.
func TestEventsOfPowers(t *testing.T) {
	h, _ := powerHarness(t)
	proc := sleeper(t)
	pid := proc.Process.Pid
	all, other := h.hear(root), h.hear(auth.Actor{UID: uint32(os.Getuid()) + 77})
	h.mustPower(root, pid, 30)
	h.mustPower(root, pid, 30) // unchanged
	h.mustPower(root, pid, 40)
	_, err := h.SetPower(context.Background(), root, api.PowerRequest{PID: pid, Power: 50, DryRun: true})
	require.NoError(t, err)

	list, err := h.Nodes(context.Background(), root)
	require.NoError(t, err)
	require.Len(t, list.Powers, 1)
	require.Equal(t, 40, list.Powers[0].Power)
	h.mustSet(root, pidSubject(proc), up(1e6))
	one, err := h.nodesFor(pidSubject(proc))
	require.NoError(t, err)
	require.Len(t, one, 1)
	_, err = h.remove(root, pidSubject(proc))
	require.NoError(t, err)

	_, err = h.power(root, pid, 0)
	require.NoError(t, err)
	h.mustPower(root, pid, 20)
	end(proc)
	h.cpuShares.Look(context.Background())
	h.eventually("it ends", func() bool { return all.last(api.EventPowerEnded).PID == pid })

	require.Equal(t, "hello power_set power_changed limit_set limit_lifted power_lifted power_set power_ended", strings.Join(all.types(), " "))
	require.Equal(t, []string{"hello"}, other.types(), "another user's are nobody's business")
	changed := all.last(api.EventPowerChanged)
	require.Equal(t, pidSubject(proc), changed.Subject.String())
	require.Equal(t, "admin", changed.By)
	require.Equal(t, 40, changed.Power.Power)
	require.Equal(t, 40, all.last(api.EventPowerLifted).Power.Power, "as it was")
	require.Equal(t, 20, all.last(api.EventPowerEnded).Power.Power)
}

func TestPowerFileThatCannotBeRead(t *testing.T) {
	h, _ := powerHarness(t)
	h.mustPower(root, sleeper(t).Process.Pid, 50)
	require.NoError(t, h.stop())
	require.NoError(t, os.WriteFile(h.cpuSharePath(), []byte(`{"version":99}`), 0o600))
	require.ErrorContains(t, Run(t.Context(), h.opts), "its version is 99")
}

// A daemon on demand stays while a process has a share.
func TestPowerKeepsADaemonOnDemand(t *testing.T) {
	fake := cpusharetest.New()
	opts := testOptions(t, &enforcetest.Kernel{})
	opts.OnDemand = true
	opts.OpenProcessors = func(cpu.Scopes) (cpushare.Processors, error) { return fake, nil }
	h := start(t, &enforcetest.Kernel{}, opts)
	proc := sleeper(t)
	h.mustPower(root, proc.Process.Pid, 50)
	require.Never(t, func() bool { return len(h.done) > 0 }, 3*opts.IdleAfter, poll)
	end(proc)
	require.NoError(t, h.wait())
	require.Zero(t, fake.Count())
}

func TestPowerByASocketOption(t *testing.T) {
	h, _ := powerHarness(t)
	pid := sleeper(t).Process.Pid
	ask := enforce.Request{PID: os.Getpid(), Admin: true, Kind: enforce.KindTree, Who: uint32(pid), OfPower: true}
	ask.Number, ask.Power = 1, 35
	a := h.answer(t.Context(), ask)
	require.Zero(t, a.Errno)
	require.EqualValues(t, 35+enforce.Power0, a.BytesPerSec)
	ask.Number, ask.Power = 2, -300
	require.EqualValues(t, unix.EINVAL, h.answer(t.Context(), ask).Errno)
	ask.Number, ask.Power, ask.Ask = 3, 0, true
	require.EqualValues(t, 35+enforce.Power0, h.answer(t.Context(), ask).BytesPerSec)
	ask.Number, ask.Who = 4, 1<<22
	require.EqualValues(t, unix.ESRCH, h.answer(t.Context(), ask).Errno)
}

// Down lifts CPU shares, and removes their file.
func TestDownLiftsPowers(t *testing.T) {
	h, fake := powerHarness(t)
	h.mustPower(root, sleeper(t).Process.Pid, 50)
	require.NoError(t, h.Down(t.Context(), root))
	require.NoError(t, h.wait())
	require.Zero(t, fake.Count())
	require.NoFileExists(t, h.cpuSharePath())
}

// Where no daemon can start, the groups that one has left are removed by its file. The file stays while they are there.
func TestLiftPowersWithoutDaemon(t *testing.T) {
	h, fake := powerHarness(t)
	h.mustPower(root, sleeper(t).Process.Pid, 50)
	require.NoError(t, h.stop())
	err := LiftPowers(t.Context(), h.opts.StateDir, func(cpu.Scopes) (cpushare.Processors, error) { return nil, unix.EIO })
	require.ErrorIs(t, err, unix.EIO)
	require.FileExists(t, h.cpuSharePath())
	find := func(cpu.Scopes) (cpushare.Processors, error) { return fake, nil }
	require.NoError(t, LiftPowers(t.Context(), h.opts.StateDir, find))
	require.Zero(t, fake.Count())
	require.NoFileExists(t, h.cpuSharePath())
	require.NoError(t, LiftPowers(t.Context(), h.opts.StateDir, find), "there is nothing")
}

// The daemon measures what a reservation for a rate needs by the bytes that the process has sent under its limit.
func TestPowerForARateBesideALimit(t *testing.T) {
	h, processors := powerHarness(t, func(o *Options) { o.Tick = time.Hour })
	proc := sleeper(t)
	node := h.mustSet(root, pidSubject(proc), up(50e6)).ID
	_, err := h.SetPower(t.Context(), root, api.PowerRequest{PID: proc.Process.Pid, AutoBytesPerSec: 50e6})
	require.NoError(t, err)
	var sent, usedNS uint64
	measured := func() float64 {
		sent, usedNS = sent+1e6, usedNS+1e6
		h.fake.SetStats(enforce.NodeStats{ID: node, Bytes: sent})
		processors.Change(func() { processors.UsedNS = usedNS })
		time.Sleep(20 * time.Millisecond)
		h.cpuShares.Look(t.Context())
		list, err := h.Powers(t.Context())
		require.NoError(t, err)
		return list.Powers[0].Auto.PercentPerMbit
	}
	h.eventually("it is measured", func() bool { return measured() > 0 })
}
