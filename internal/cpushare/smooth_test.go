package cpushare

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

func TestPowerInSlots(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	req := api.PowerRequest{PID: pid, Power: 25, SlotNS: 1e6}
	answer, err := h.Set(t.Context(), root, req)
	require.NoError(t, err)
	require.EqualValues(t, 1e6, answer.Power.SlotNS)
	want := cpu.Slots(25, time.Millisecond)
	want.Weight = cpu.MostWeight
	s, _ := fake.ShareOf(dirOf(pid))
	require.Equal(t, want, s)
	require.Equal(t, map[string]cpu.Share{dirOf(pid): want}, fake.Slotted())

	_, err = h.power(root, pid, 25)
	require.NoError(t, err)
	require.Empty(t, fake.Slotted(), "by the quota alone")
	_, err = h.Set(t.Context(), root, req)
	require.NoError(t, err)
	require.Len(t, fake.Slotted(), 1)
	_, err = h.power(root, pid, 0)
	require.NoError(t, err)
	require.Empty(t, fake.Slotted())

	fake.Change(func() { fake.Failure = enforce.ErrNotSupported })
	_, err = h.Set(t.Context(), root, req)
	testutil.RequireCode(t, api.CodeNotSupported, err)
	require.Zero(t, h.Count())
}

func TestPowerSmoothRefused(t *testing.T) {
	h := newHarness(t)
	pid := sleeper(t).Process.Pid
	for _, req := range []api.PowerRequest{
		{PID: pid, Power: -5, SlotNS: 1e6},
		{PID: pid, SlotNS: 1e6},
		{PID: pid, Power: 101, SlotNS: 1e6},
		{PID: pid, Power: 5, SlotNS: 1e5},
		{PID: pid, Power: 5, SlotNS: 11e6},
		{PID: pid, Power: 5, SlotNS: 1e6, Strict: true},
		{PID: pid, PeriodNS: 20e6, SliceNS: 5e6, Strict: true},
		{PID: pid, Power: 5, Extra: true},
		{PID: pid, AutoBytesPerSec: 1e6, Strict: true},
	} {
		_, err := h.Set(t.Context(), root, req)
		testutil.RequireCode(t, api.CodeBadRequest, err)
	}
	self := auth.Actor{UID: 4343}
	for _, req := range []api.PowerRequest{{SlotNS: 1e6}, {Strict: true}} {
		p := entry{PID: pid, UID: self.UID}
		req.Power = 5
		err := h.want(self, &p, req, auth.Target{Kind: enforce.KindTree, UID: self.UID})
		testutil.RequireCode(t, api.CodeDenied, err)
	}
}

// A process gets its deadline once that fits and loses it when that no longer fits. The end of its power takes it back.
func TestPowerStrict(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	has := func() bool { _, ok := fake.Deadline(pid); return ok }
	fake.Change(func() { fake.NoDeadline = enforce.ErrNotSupported })
	answer, err := h.Set(t.Context(), root, api.PowerRequest{PID: pid, Power: 30, Strict: true})
	require.NoError(t, err)
	require.True(t, answer.Power.Strict)
	require.False(t, answer.Power.Deadline)
	require.NotEmpty(t, answer.Power.NoDeadline)
	require.False(t, has())

	fake.Change(func() { fake.NoDeadline = nil })
	h.Look(t.Context())
	require.True(t, has(), "it fits now")
	s, _ := fake.Deadline(pid)
	require.Equal(t, [2]uint64{6e6, 20e6}, [2]uint64{s.SliceNS, s.PeriodNS})
	fake.Change(func() { fake.NoDeadline = enforce.ErrNotSupported })
	h.Look(t.Context())
	require.False(t, has(), "it has threads now")
	fake.Change(func() { fake.NoDeadline = nil })
	h.Look(t.Context())
	require.True(t, has())

	h.stop()
	require.True(t, has(), "what holds survives the daemon")
	h = startTable(t, h.host, fake)
	require.True(t, has())
	h.mustPower(root, pid, 30)
	require.False(t, has(), "without a deadline")
	answer, err = h.Set(t.Context(), root, api.PowerRequest{PID: pid, Power: 30, Strict: true})
	require.NoError(t, err)
	require.True(t, answer.Power.Deadline)
	_, err = h.power(root, pid, 0)
	require.NoError(t, err)
	require.False(t, has())
}

func TestPowerExtra(t *testing.T) {
	h := newHarness(t)
	fake := h.fake
	pid := sleeper(t).Process.Pid
	answer, err := h.Set(t.Context(), root, api.PowerRequest{PID: pid, PeriodNS: 20e6, SliceNS: 10e6, Extra: true})
	require.NoError(t, err)
	require.True(t, answer.Power.Extra)
	require.True(t, answer.Power.Guaranteed)
	require.Equal(t, 50, answer.Power.Power)
	s, _ := fake.ShareOf(dirOf(pid))
	require.Zero(t, s.SliceNS, "no ceiling")
	require.Greater(t, s.Weight, uint64(cpu.OrdinaryWeight))
	require.Equal(t, 50.0, h.list[pid].guaranteed())
	_, err = h.power(root, sleeper(t).Process.Pid, 100)
	require.NoError(t, err)
	_, err = h.power(root, sleeper(t).Process.Pid, 60)
	testutil.RequireCode(t, api.CodeConflict, err)

	// The weight follows one other program that has much of the processors.
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ran := uint64(0); ctx.Err() == nil; ran++ {
			fake.Change(func() { fake.UsedNS, fake.WaitedNS = ran*1e5, ran*9e5 })
			time.Sleep(time.Millisecond)
		}
	}()
	require.Eventually(t, func() bool { now, _ := fake.ShareOf(dirOf(pid)); return now.Weight > 4*s.Weight }, 5*time.Second, 10*time.Millisecond)
	stop()
	<-done
}

// The control law finds, from any weight, the weight that gives the slice and an ordinary share of the rest.
func TestExtraSeen(t *testing.T) {
	for _, percent := range []float64{5, 30, 50, 80, 95} {
		for _, hogs := range []float64{1, 2, 8, 100} {
			var e extraSeen
			others := hogs * cpu.OrdinaryWeight
			had := 0.0
			for range 100 {
				w := e.weightFor(percent)
				had = float64(w) / (float64(w) + others)
				e.follow(w, percent, had, 1-had)
			}
			// The heaviest possible weight bounds the result.
			want := min(percent/100+(1-percent/100)/(1+hogs), cpu.MostWeight/(cpu.MostWeight+others))
			require.InDelta(t, want, had, 0.01, "%v beside %v", percent, hogs)
		}
	}
	var e extraSeen
	require.LessOrEqual(t, e.weightFor(100), uint64(cpu.MostWeight))
	require.NotZero(t, e.weightFor(math.SmallestNonzeroFloat64))
	before := e
	e.follow(2048, 50, 0.7, 0)
	require.Equal(t, before, e, "nobody else wants it")
}
