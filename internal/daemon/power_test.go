package daemon

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

func powerHarness(t *testing.T, change ...func(*Options)) (*harness, *fakeProcessors) {
	t.Helper()
	fake, kernel := newProcessors(), &enforcetest.Kernel{}
	opts := testOptions(t, kernel)
	opts.OpenProcessors = func(cpu.Scopes) (Processors, error) { return fake, nil }
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

func dirOf(pids ...int) (dir string) {
	for _, pid := range pids {
		dir += "/" + strconv.Itoa(pid)
	}
	return dir
}

func TestPower(t *testing.T) {
	h, fake := powerHarness(t)
	pid := sleeper(t).Process.Pid
	p := h.mustPower(root, pid, 30)
	require.Equal(t, 30, p.Power)
	require.True(t, p.Guaranteed)
	require.Equal(t, []string{"admin"}, p.Owners)
	s, _ := fake.share(dirOf(pid))
	require.Equal(t, cpu.Share{SliceNS: 6e6, PeriodNS: 20e6, Weight: cpu.MostWeight}, s)

	require.Equal(t, -255, h.mustPower(root, pid, -255).Power)
	s, _ = fake.share(dirOf(pid))
	require.Equal(t, cpu.Priority(-255), s)

	answer, err := h.power(root, pid, 0)
	require.NoError(t, err)
	require.Nil(t, answer.Power)
	require.Zero(t, fake.count())
	require.NoFileExists(t, h.powerPath())
	answer, err = h.power(root, pid, 0)
	require.NoError(t, err)
	require.False(t, answer.Changed)
	require.NotEmpty(t, answer.Warnings)
}

func TestPowerRefused(t *testing.T) {
	h, fake := powerHarness(t)
	pid := sleeper(t).Process.Pid
	for _, n := range []int{-256, 100*cpu.Online() + 1} {
		_, err := h.power(root, pid, n)
		requireCode(t, api.CodeBadRequest, err)
	}
	for _, req := range []api.PowerRequest{
		{PID: pid, Power: 5, PeriodNS: 20e6, SliceNS: 1e6},
		{PID: pid, PeriodNS: 20e6},
		{PID: pid, PeriodNS: 2e9, SliceNS: 1e6},
		{PID: pid, PeriodNS: 20e6, SliceNS: 1},
		{PID: 1, Power: 5},
	} {
		_, err := h.SetPower(t.Context(), root, req)
		requireCode(t, api.CodeBadRequest, err)
	}
	_, err := h.power(root, 1<<22, 5)
	requireCode(t, api.CodeNotFound, err)
	_, err = h.power(auth.Actor{UID: 4242}, pid, 5)
	requireCode(t, api.CodeDenied, err)
	fake.fail = enforce.ErrNotSupported
	_, err = h.power(root, pid, 5)
	requireCode(t, api.CodeNotSupported, err)
	require.Zero(t, h.powerCount())
	require.NoFileExists(t, h.powerPath())
}

// The lower of the CPU shares that the owners request holds, and only the administrator's is guaranteed.
func TestPowerOfOwners(t *testing.T) {
	h, fake := powerHarness(t)
	testutil.RequireRoot(t)
	me := auth.Actor{UID: 4343}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: me.UID, Gid: me.UID}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	proc := cmd.Process.Pid
	p := h.mustPower(me, proc, 50)
	require.False(t, p.Guaranteed)
	s, _ := fake.share(dirOf(proc))
	require.EqualValues(t, cpu.OrdinaryWeight, s.Weight)

	p = h.mustPower(root, proc, 20)
	require.Equal(t, 20, p.Power)
	require.Len(t, p.Owners, 2)
	require.Equal(t, 20, h.mustPower(me, proc, 80).Power, "what the administrator set stays")
	p = h.mustPower(me, proc, 10)
	require.Equal(t, 10, p.Power)
	require.True(t, p.Guaranteed)
	require.Equal(t, 10.0, h.powers.list[proc].guaranteed())
	p = h.mustPower(me, proc, -100)
	require.Equal(t, -100, p.Power)
	require.False(t, p.Guaranteed, "its owner lets others first")
	s, _ = fake.share(dirOf(proc))
	require.Equal(t, cpu.Share{SliceNS: 4e6, PeriodNS: 20e6, Weight: cpu.Priority(-100).Weight}, s)

	require.Equal(t, 20, h.mustPower(me, proc, 0).Power)
	_, err := h.SetPower(t.Context(), me, api.PowerRequest{PID: proc, PeriodNS: 20e6, SliceNS: 5e6})
	requireCode(t, api.CodeDenied, err)
	h.mustPower(me, proc, 5)
	answer, err := h.power(root, proc, 0)
	require.NoError(t, err)
	require.Nil(t, answer.Power, "the administrator lifts both")
}

// The share of a program is free as soon as the program has ended, not at the next tick.
func TestPowerOfEndedProgramsIsFree(t *testing.T) {
	h, _ := powerHarness(t, func(o *Options) { o.Tick = time.Hour })
	for range 4 {
		ended := sleeper(t)
		_, err := h.power(root, ended.Process.Pid, 90)
		require.NoError(t, err)
		end(ended)
	}
	list, err := h.Powers(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, list.GuaranteedPercent, 180.0)
}

func TestPowerAdmission(t *testing.T) {
	h, _ := powerHarness(t)
	a, b := sleeper(t).Process.Pid, sleeper(t).Process.Pid
	answer, err := h.SetPower(t.Context(), root, api.PowerRequest{PID: a, PeriodNS: 10e6, SliceNS: 12e6})
	if cpu.Online() > 1 {
		require.NoError(t, err)
		require.Equal(t, 120, answer.Power.Power)
		require.True(t, answer.Power.Reserved)
	} else {
		requireCode(t, api.CodeBadRequest, err)
		h.mustPower(root, a, 100)
		h.mustPower(root, sleeper(t).Process.Pid, 20)
	}
	_, err = h.power(root, b, 81)
	require.ErrorContains(t, err, "120 of 200 are promised already, 80 are left for one more")
	requireCode(t, api.CodeConflict, err)
	h.mustPower(root, b, 80)
	h.mustPower(root, b, 70)
	_, err = h.power(root, b, 81)
	requireCode(t, api.CodeConflict, err)
	list, err := h.Powers(t.Context())
	require.NoError(t, err)
	require.Equal(t, 190.0, list.GuaranteedPercent)
	require.Equal(t, 200.0, list.CapacityPercent)
}

// nested starts a shell with a child. Both sleep.
func nested(t *testing.T) (outer, inner int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
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

// A share inside another's is a group inside its group, in whatever order they were set.
func TestPowerNested(t *testing.T) {
	h, fake := powerHarness(t)
	outer, inner := nested(t)
	h.mustPower(root, inner, 40)
	h.mustPower(root, outer, 50)
	_, there := fake.share(dirOf(inner))
	require.False(t, there)
	_, there = fake.share(dirOf(outer, inner))
	require.True(t, there, "%v", fake.shares)
	_, err := h.power(root, inner, 60)
	requireCode(t, api.CodeConflict, err) // more than the share around it guarantees
	h.mustPower(root, inner, 45)
	require.Equal(t, 50.0, h.guaranteedPercent(0), "it is a part of the outer's")

	_, err = h.power(root, outer, 0)
	require.NoError(t, err)
	s, there := fake.share(dirOf(inner))
	require.True(t, there)
	require.EqualValues(t, 9e6, s.SliceNS)
	_, there = fake.share(dirOf(outer))
	require.False(t, there)
}

func TestPowerSurvivesTheDaemon(t *testing.T) {
	h, fake := powerHarness(t)
	outer, inner := nested(t)
	h.mustPower(root, outer, 50)
	h.mustPower(root, inner, 25)
	require.NoError(t, h.stop())
	require.Equal(t, 2, fake.count(), "they hold on")

	// The file has one share whose daemon ended before the group was made, and one whose process has ended.
	delete(fake.shares, dirOf(outer, inner))
	fake.at[inner] = dirOf(outer)
	again := start(t, &enforcetest.Kernel{}, h.opts)
	s, there := fake.share(dirOf(outer, inner))
	require.True(t, there)
	require.EqualValues(t, 5e6, s.SliceNS)
	require.Equal(t, 2, again.powerCount())
	_ = unix.Kill(inner, unix.SIGKILL)
	again.eventually("the share of a process that has ended", func() bool { return again.powerCount() == 1 })
	require.NoError(t, again.Down(t.Context(), root))
	require.NoError(t, again.wait())
	require.Zero(t, fake.count())
	require.NoFileExists(t, again.powerPath())
}

func TestPowerFileThatCannotBeRead(t *testing.T) {
	h, _ := powerHarness(t)
	h.mustPower(root, sleeper(t).Process.Pid, 50)
	require.NoError(t, h.stop())
	require.NoError(t, os.WriteFile(h.powerPath(), []byte(`{"version":99}`), 0o600))
	require.ErrorContains(t, Run(t.Context(), h.opts), "its version is 99")
}

// A daemon on demand stays while a process has a share.
func TestPowerKeepsADaemonOnDemand(t *testing.T) {
	fake := newProcessors()
	opts := testOptions(t, &enforcetest.Kernel{})
	opts.OnDemand = true
	opts.OpenProcessors = func(cpu.Scopes) (Processors, error) { return fake, nil }
	h := start(t, &enforcetest.Kernel{}, opts)
	proc := sleeper(t)
	h.mustPower(root, proc.Process.Pid, 50)
	require.Never(t, func() bool { return len(h.done) > 0 }, 3*opts.IdleAfter, poll)
	end(proc)
	require.NoError(t, h.wait())
	require.Zero(t, fake.count())
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

// A reservation for a rate follows the measurement, at whatever rate that was made.
func TestPowerFollowsARate(t *testing.T) {
	const rate = 50_000_000 // bytes/s: 400 Mbit/s
	w := wishFor(auto{RateBytesPerSec: rate}.guess(), auto{RateBytesPerSec: rate})
	require.InDelta(t, 40, w.percent(), 0.1, "a guess")
	var seen autoSeen
	_, changed := w.follow(1000, 0.1, &seen)
	require.False(t, changed, "it sends next to nothing")

	w, changed = w.follow(rate/2, 8, &seen) // 16 for the whole rate
	require.True(t, changed)
	require.InDelta(t, 20, w.percent(), 1)
	require.InDelta(t, 0.04, w.Auto.PercentPerMbit, 1e-9)
	require.EqualValues(t, rate/2, w.Auto.MeasuredBytesPerSec)

	_, changed = w.follow(rate, 16.3, &seen)
	require.True(t, changed, "a little more")
	_, changed = w.follow(rate, 15, &seen)
	require.False(t, changed, "less is corrected later")

	w, changed = w.follow(0.9*rate, w.percent(), &seen)
	require.True(t, changed, "it could not do more with that")
	require.Greater(t, w.percent(), 29.0)
	for range autoLooks - 1 {
		_, changed = w.follow(rate, 10, &seen)
		require.False(t, changed)
	}
	w, changed = w.follow(rate, 10, &seen)
	require.True(t, changed, "too much for long")
	require.InDelta(t, 12.5, w.percent(), 1)
}

// The daemon finds a reservation for a rate from the bytes that the process sends and the CPU time that it uses.
func TestPowerForARate(t *testing.T) {
	h, fake := powerHarness(t)
	proc := sleeper(t)
	pid := proc.Process.Pid
	h.mustSet(root, pidSubject(proc), up(50e6))
	ask := api.PowerRequest{PID: pid, AutoBytesPerSec: 50e6}
	answer, err := h.SetPower(t.Context(), root, ask)
	require.NoError(t, err)
	require.NotEmpty(t, answer.Warnings, "nothing was measured")
	require.Zero(t, answer.Power.Auto.PercentPerMbit)
	again, err := h.SetPower(t.Context(), root, ask)
	require.NoError(t, err)
	require.False(t, again.Changed)
	s, _ := fake.share(dirOf(pid))
	require.EqualValues(t, 8e6, s.SliceNS, "the guess: 40 per cent")

	for _, req := range []api.PowerRequest{
		{PID: pid, AutoBytesPerSec: 5, Power: 5},
		{PID: pid, AutoBytesPerSec: 5, PeriodNS: 20e6, SliceNS: 5e6},
	} {
		_, err := h.SetPower(t.Context(), root, req)
		requireCode(t, api.CodeBadRequest, err)
	}
	_, err = h.SetPower(t.Context(), auth.Actor{UID: 4242}, ask)
	requireCode(t, api.CodeDenied, err)
	answer, err = h.power(root, pid, 0)
	require.NoError(t, err)
	require.Nil(t, answer.Power)
}

// The daemon promises no more than is left, says what is missing, and does not request it again at each reading.
func TestPowerForARateThatIsNotLeft(t *testing.T) {
	h, fake := powerHarness(t, func(o *Options) { o.Tick = time.Hour })
	proc := sleeper(t)
	pid := proc.Process.Pid
	h.mustSet(root, pidSubject(proc), up(50e6))
	for range 2 {
		h.mustPower(root, sleeper(t).Process.Pid, 75)
	}
	answer, err := h.SetPower(t.Context(), root, api.PowerRequest{PID: pid, AutoBytesPerSec: 50e6})
	require.NoError(t, err)
	require.Equal(t, 25, answer.Power.Power, "all that is left for one more")
	node := h.mustSet(root, pidSubject(proc), up(50e6)).ID
	seen := func(seconds float64, bytes, usedNS uint64) {
		h.fake.SetStats(enforce.NodeStats{ID: node, Bytes: bytes})
		h.powers.mu.Lock()
		defer h.powers.mu.Unlock()
		p := h.powers.list[pid]
		p.usedNS, p.usedAt = usedNS, time.Unix(0, int64(seconds*1e9))
		h.followAuto(t.Context(), p)
	}
	seen(1, 0, 0)
	seen(2, 25e6, 250e6) // half the rate, with its whole reservation
	list, err := h.Powers(t.Context())
	require.NoError(t, err)
	for _, p := range list.Powers {
		if p.PID == pid {
			require.True(t, p.Auto.Short)
			require.Equal(t, 25, p.Power)
			require.InDelta(t, 0.125, p.Auto.PercentPerMbit, 1e-9)
		}
	}
	s, _ := fake.share(dirOf(pid))
	require.EqualValues(t, 5e6, s.SliceNS)
}
