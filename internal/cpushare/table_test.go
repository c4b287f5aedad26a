package cpushare

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

func TestPower(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	p := h.mustPower(root, pid, 30)
	require.Equal(t, 30, p.Power)
	require.True(t, p.Guaranteed)
	require.Equal(t, []string{"admin"}, p.Owners)
	s, _ := fake.ShareOf(dirOf(pid))
	require.Equal(t, cpu.Share{SliceNS: 6e6, PeriodNS: 20e6, Weight: cpu.MostWeight}, s)

	require.Equal(t, -255, h.mustPower(root, pid, -255).Power)
	s, _ = fake.ShareOf(dirOf(pid))
	require.Equal(t, cpu.Priority(-255), s)

	answer, err := h.power(root, pid, 0)
	require.NoError(t, err)
	require.Nil(t, answer.Power)
	require.Zero(t, fake.Count())
	require.Empty(t, h.host.Text())
	answer, err = h.power(root, pid, 0)
	require.NoError(t, err)
	require.False(t, answer.Changed)
	require.NotEmpty(t, answer.Warnings)
}

func TestPowerRefused(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	for _, n := range []int{-256, 100*cpu.Online() + 1} {
		_, err := h.power(root, pid, n)
		testutil.RequireCode(t, api.CodeBadRequest, err)
	}
	for _, req := range []api.PowerRequest{
		{PID: pid, Power: 5, PeriodNS: 20e6, SliceNS: 1e6},
		{PID: pid, PeriodNS: 20e6},
		{PID: pid, PeriodNS: 2e9, SliceNS: 1e6},
		{PID: pid, PeriodNS: 20e6, SliceNS: 1},
		{PID: 1, Power: 5},
	} {
		_, err := h.Set(t.Context(), root, req)
		testutil.RequireCode(t, api.CodeBadRequest, err)
	}
	_, err := h.power(root, 1<<22, 5)
	testutil.RequireCode(t, api.CodeNotFound, err)
	_, err = h.power(auth.Actor{UID: 4242}, pid, 5)
	testutil.RequireCode(t, api.CodeDenied, err)
	fake.Change(func() { fake.Failure = enforce.ErrNotSupported })
	_, err = h.power(root, pid, 5)
	testutil.RequireCode(t, api.CodeNotSupported, err)
	require.Zero(t, h.Count())
	require.Empty(t, h.host.Text())
}

// The lower of the CPU shares that the owners request holds, and only the administrator's is guaranteed.
func TestPowerOfOwners(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	testutil.RequireRoot(t)
	me := auth.Actor{UID: 4343}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: me.UID, Gid: me.UID}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	proc := cmd.Process.Pid
	p := h.mustPower(me, proc, 50)
	require.False(t, p.Guaranteed)
	s, _ := fake.ShareOf(dirOf(proc))
	require.EqualValues(t, cpu.OrdinaryWeight, s.Weight)

	p = h.mustPower(root, proc, 20)
	require.Equal(t, 20, p.Power)
	require.Len(t, p.Owners, 2)
	require.Equal(t, 20, h.mustPower(me, proc, 80).Power, "what the administrator set stays")
	p = h.mustPower(me, proc, 10)
	require.Equal(t, 10, p.Power)
	require.True(t, p.Guaranteed)
	require.Equal(t, 10.0, h.list[proc].guaranteed())
	p = h.mustPower(me, proc, -100)
	require.Equal(t, -100, p.Power)
	require.False(t, p.Guaranteed, "its owner lets others first")
	s, _ = fake.ShareOf(dirOf(proc))
	require.Equal(t, cpu.Share{SliceNS: 4e6, PeriodNS: 20e6, Weight: cpu.Priority(-100).Weight}, s)

	require.Equal(t, 20, h.mustPower(me, proc, 0).Power)
	_, err := h.Set(t.Context(), me, api.PowerRequest{PID: proc, PeriodNS: 20e6, SliceNS: 5e6})
	testutil.RequireCode(t, api.CodeDenied, err)
	h.mustPower(me, proc, 5)
	answer, err := h.power(root, proc, 0)
	require.NoError(t, err)
	require.Nil(t, answer.Power, "the administrator lifts both")
}

// The share of a program is free as soon as the program has ended, not at the next tick.
func TestPowerOfEndedProgramsIsFree(t *testing.T) {
	h := newHarness(t)
	for range 4 {
		ended := sleeper(t)
		_, err := h.power(root, ended.Process.Pid, 90)
		require.NoError(t, err)
		end(ended)
	}
	list := h.List()
	require.LessOrEqual(t, list.GuaranteedPercent, 180.0)
}

func TestPowerAdmission(t *testing.T) {
	h := newHarness(t)
	a, b := sleeper(t).Process.Pid, sleeper(t).Process.Pid
	answer, err := h.Set(t.Context(), root, api.PowerRequest{PID: a, PeriodNS: 10e6, SliceNS: 12e6})
	if cpu.Online() > 1 {
		require.NoError(t, err)
		require.Equal(t, 120, answer.Power.Power)
		require.True(t, answer.Power.Reserved)
	} else {
		testutil.RequireCode(t, api.CodeBadRequest, err)
		h.mustPower(root, a, 100)
		h.mustPower(root, sleeper(t).Process.Pid, 20)
	}
	_, err = h.power(root, b, 81)
	require.ErrorContains(t, err, "120 of 200 are promised already, 80 are left for one more")
	testutil.RequireCode(t, api.CodeConflict, err)
	h.mustPower(root, b, 80)
	h.mustPower(root, b, 70)
	_, err = h.power(root, b, 81)
	testutil.RequireCode(t, api.CodeConflict, err)
	list := h.List()
	require.Equal(t, 190.0, list.GuaranteedPercent)
	require.Equal(t, 200.0, list.CapacityPercent)
}

// A share inside another's is a group inside its group, in whatever order they were set.
func TestPowerNested(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	outer, inner := nested(t)
	h.mustPower(root, inner, 40)
	h.mustPower(root, outer, 50)
	_, there := fake.ShareOf(dirOf(inner))
	require.False(t, there)
	_, there = fake.ShareOf(dirOf(outer, inner))
	require.True(t, there, "%v", fake.Shares)
	_, err := h.power(root, inner, 60)
	testutil.RequireCode(t, api.CodeConflict, err) // more than the share around it guarantees
	h.mustPower(root, inner, 45)
	require.Equal(t, 50.0, h.guaranteedPercent(0), "it is a part of the outer's")

	_, err = h.power(root, outer, 0)
	require.NoError(t, err)
	s, there := fake.ShareOf(dirOf(inner))
	require.True(t, there)
	require.EqualValues(t, 9e6, s.SliceNS)
	_, there = fake.ShareOf(dirOf(outer))
	require.False(t, there)
}

func TestPowerSurvivesTheDaemon(t *testing.T) {
	h := newHarness(t)
	outer, inner := nested(t)
	h.mustPower(root, outer, 50)
	h.mustPower(root, inner, 25)
	h.stop()
	require.Equal(t, 2, h.fake.Count(), "they hold on")

	// The file has one share whose daemon ended before the group was made, and one whose process has ended.
	h.fake.Change(func() {
		delete(h.fake.Shares, dirOf(outer, inner))
		h.fake.At[inner] = dirOf(outer)
	})
	again := startTable(t, h.host, h.fake)
	s, there := h.fake.ShareOf(dirOf(outer, inner))
	require.True(t, there)
	require.EqualValues(t, 5e6, s.SliceNS)
	require.Equal(t, 2, again.Count())
	_ = unix.Kill(inner, unix.SIGKILL)
	require.Eventually(t, func() bool { again.Look(t.Context()); return again.Count() == 1 }, 5*time.Second, 2*time.Millisecond,
		"the share of a process that has ended")
	leaving := &api.Error{Code: api.CodeConflict, Message: "leaving", Hint: "wait"}
	lifted, err := again.Lift(t.Context(), leaving)
	require.NoError(t, err)
	require.Zero(t, h.fake.Count())
	require.Empty(t, h.host.Text())
	_, err = again.power(root, outer, 20)
	require.ErrorIs(t, err, leaving)
	require.NoError(t, again.Resume(t.Context(), lifted))
	require.Equal(t, 1, again.Count())
	again.mustPower(root, outer, 20)
}

// The error for an impossible request names a command that does nearly the same.
func TestRemediesOfBadRequests(t *testing.T) {
	most := cpu.MostPower * cpu.Online()
	for want, err := range map[string]error{
		fmt.Sprintf("netnice power 7 %d", most):                     check(api.PowerRequest{PID: 7, Power: most + 300}),
		"netnice power 7 -255":                                      check(api.PowerRequest{PID: 7, Power: -300}),
		"netnice power 7 40 --slots 1ms":                            check(api.PowerRequest{PID: 7, Power: 30, SlotNS: 1e6, Strict: true}),
		"netnice reserve --pid 7 --rate 400mbit --cpu auto":         check(api.PowerRequest{PID: 7, Power: 30, AutoBytesPerSec: 1e6}),
		"netnice reserve --pid 7 --cpu-period 20ms --cpu-slice 5ms": check(api.PowerRequest{PID: 7, SliceNS: 5e6, PeriodNS: 5e9}),
	} {
		require.Equal(t, want, testutil.RequireFault(t, api.CodeBadRequest, err).Hint)
	}
}

// The hint for a caller without the right to set a CPU share is the command that was meant, not another.
func TestPowerCommand(t *testing.T) {
	for want, asked := range map[string]wish{
		"sudo netnice power 7 30":                                                       {Power: 30},
		"sudo netnice power 7 0":                                                        {},
		"sudo netnice power 7 -20":                                                      {Power: -20},
		"sudo netnice power 7 30 --slots 1ms":                                           {Power: 30, SlotNS: 1e6},
		"sudo netnice power 7 30 --strict":                                              {Power: 30, Strict: true},
		"sudo netnice reserve --pid 7 --cpu-period 20ms --cpu-slice 5ms":                {PeriodNS: 20e6, SliceNS: 5e6},
		"sudo netnice reserve --pid 7 --cpu-period 100ms --cpu-slice 2.5ms --cpu-extra": {PeriodNS: 100e6, SliceNS: 25e5, Extra: true},
		"sudo netnice reserve --pid 7 --rate 50MB/s --cpu auto":                         {Auto: auto{RateBytesPerSec: 50e6}, PeriodNS: 20e6, SliceNS: 1e6},
	} {
		require.Equal(t, want, command(7, asked))
		err := auth.Check(auth.Actor{UID: 4242}, auth.Power, auth.Target{Subject: api.Subject{Kind: api.KindPID, ID: "7"}, Command: command(7, asked)})
		require.Equal(t, want, testutil.RequireFault(t, api.CodeDenied, err).Hint)
	}
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
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	ask := api.PowerRequest{PID: pid, AutoBytesPerSec: 50e6}
	answer, err := h.Set(t.Context(), root, ask)
	require.NoError(t, err)
	require.NotEmpty(t, answer.Warnings, "nothing was measured")
	require.Zero(t, answer.Power.Auto.PercentPerMbit)
	again, err := h.Set(t.Context(), root, ask)
	require.NoError(t, err)
	require.False(t, again.Changed)
	s, _ := fake.ShareOf(dirOf(pid))
	require.EqualValues(t, 8e6, s.SliceNS, "the guess: 40 per cent")

	for _, req := range []api.PowerRequest{
		{PID: pid, AutoBytesPerSec: 5, Power: 5},
		{PID: pid, AutoBytesPerSec: 5, PeriodNS: 20e6, SliceNS: 5e6},
	} {
		_, err := h.Set(t.Context(), root, req)
		testutil.RequireCode(t, api.CodeBadRequest, err)
	}
	_, err = h.Set(t.Context(), auth.Actor{UID: 4242}, ask)
	testutil.RequireCode(t, api.CodeDenied, err)
	answer, err = h.power(root, pid, 0)
	require.NoError(t, err)
	require.Nil(t, answer.Power)
}

// The daemon promises no more than is left, says what is missing, and does not request it again at each reading.
func TestPowerForARateThatIsNotLeft(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	for range 2 {
		h.mustPower(root, sleeper(t).Process.Pid, 75)
	}
	answer, err := h.Set(t.Context(), root, api.PowerRequest{PID: pid, AutoBytesPerSec: 50e6})
	require.NoError(t, err)
	require.Equal(t, 25, answer.Power.Power, "all that is left for one more")
	seen := func(seconds float64, bytes, usedNS uint64) {
		h.host.sends(bytes)
		h.mu.Lock()
		defer h.mu.Unlock()
		p := h.list[pid]
		p.usedNS, p.usedAt = usedNS, time.Unix(0, int64(seconds*1e9))
		h.followAuto(t.Context(), p)
	}
	seen(1, 0, 0)
	seen(2, 25e6, 250e6) // half the rate, with its whole reservation
	list := h.List()
	for _, p := range list.Powers {
		if p.PID == pid {
			require.True(t, p.Auto.Short)
			require.Equal(t, 25, p.Power)
			require.InDelta(t, 0.125, p.Auto.PercentPerMbit, 1e-9)
		}
	}
	s, _ := fake.ShareOf(dirOf(pid))
	require.EqualValues(t, 5e6, s.SliceNS)
}
