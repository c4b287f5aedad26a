package cpu

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testutil"
)

func TestSlots(t *testing.T) {
	for n := 1; n < MostPower; n++ {
		for slot := LeastSlot; slot <= MostSlot; slot += time.Millisecond {
			s := Slots(n, slot)
			require.InDelta(t, float64(n)/100, float64(s.SliceNS)/float64(s.PeriodNS), 1e-6, "n = %d", n)
			require.GreaterOrEqual(t, s.SliceNS, uint64(slot))
			require.GreaterOrEqual(t, s.PeriodNS-s.SliceNS, uint64(slot))
			require.LessOrEqual(t, s.PeriodNS, uint64(1e9), "the kernel's longest period")
			require.True(t, s.Exact)
		}
	}
	require.Equal(t, Share{SliceNS: 1e6, PeriodNS: 4e6, Weight: OrdinaryWeight, Exact: true}, Slots(25, time.Millisecond))
	require.Equal(t, Share{SliceNS: 3e6, PeriodNS: 4e6, Weight: OrdinaryWeight, Exact: true}, Slots(75, time.Millisecond))
	require.Equal(t, Ceiling(100), Slots(100, time.Millisecond))
}

func TestRhythm(t *testing.T) {
	const ms = uint64(time.Millisecond)
	r := rhythm{phaseNS: 100*ms + 7, periodNS: 4 * ms, sliceNS: ms}
	begin := 140*ms + 7
	for _, c := range []struct{ now, next uint64 }{
		{begin, begin},
		{begin + uint64(late) - 1, begin},
		{begin + uint64(late), begin + ms},
		{begin + ms + uint64(late), begin + 4*ms},
		{begin - 1, begin},
	} {
		require.Equal(t, c.next+uint64(late), r.next(c.now), "%d", c.now-begin)
	}
}

// gaps is the output of a program that only polls the clock.
type gaps struct {
	Share float64
	// OnNS and OffNS are the medians of the times for which it ran and stood still.
	OnNS, OffNS uint64
	PerSec      float64
}

// lookAtTheTime polls the clock, and prints the gaps that it saw, once a second.
func lookAtTheTime() {
	const still = 200 * time.Microsecond
	out := json.NewEncoder(os.Stdout)
	for {
		var on, off []uint64
		usedNS := ThreadsUsed(os.Getpid())
		begin := monotonicNS()
		last, since := begin, begin
		for last < begin+1e9 {
			now := monotonicNS()
			if now-last > uint64(still) {
				on, off = append(on, last-since), append(off, now-last)
				since = now
			}
			last = now
		}
		over := float64(last - begin)
		slices.Sort(on)
		slices.Sort(off)
		g := gaps{Share: float64(ThreadsUsed(os.Getpid())-usedNS) / over * 100, PerSec: float64(len(off)) / over * 1e9}
		if len(off) > 0 {
			g.OnNS, g.OffNS = on[len(on)/2], off[len(off)/2]
		}
		if out.Encode(g) != nil {
			return
		}
	}
}

// The slots are whole, both alone and beside many others that want all processor time. No group stands still for good
// when the driver is gone.
func TestSlotsAreKept(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSlots, TestRhythm")
	m := machine(t)
	cmd := as("time")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	pid := started(t, cmd)
	lines := json.NewDecoder(out)
	g := made(t, m, pid, Slots(50, time.Millisecond))
	var d driver
	t.Cleanup(func() { require.NoError(t, d.keep(nil)) })
	next := func(seconds int) (seen gaps) {
		t.Helper()
		for range seconds {
			require.NoError(t, lines.Decode(&seen))
		}
		return seen
	}
	last := 0 // the percentage that was set last
	for _, others := range []int{0, 2 * Online()} {
		for range others {
			spinner(t, 1)
		}
		for _, c := range testutil.Subset([]struct {
			n       int
			on, off time.Duration
		}{
			{50, time.Millisecond, time.Millisecond},
			{25, time.Millisecond, 3 * time.Millisecond},
			{10, time.Millisecond, 9 * time.Millisecond},
			{75, 3 * time.Millisecond, time.Millisecond},
		}, 1) {
			last = c.n
			s := Slots(c.n, time.Millisecond)
			s.Weight = MostWeight
			require.NoError(t, m.Set(t.Context(), g, s))
			require.NoError(t, d.keep(map[string]Share{g.Dir: s}))
			var seen gaps
			offBound := max(3e5, 0.08*float64(c.off)) // with fewer slots a larger part of them is skipped
			for range 3 {                             // a second on a busy machine shows nothing
				seen = next(2)
				t.Logf("n = %d beside %d: %.2f per cent, %.1f times a second %.3f ms on, %.3f off", c.n, others, seen.Share, seen.PerSec, float64(seen.OnNS)/1e6, float64(seen.OffNS)/1e6)
				if math.Abs(seen.Share-float64(c.n)) < 1.5 && math.Abs(float64(seen.OnNS)-float64(c.on)) < 2e5 && math.Abs(float64(seen.OffNS)-float64(c.off)) < offBound {
					break
				}
			}
			require.InDelta(t, c.n, seen.Share, 1.5, "beside %d", others)
			require.InDelta(t, c.on, seen.OnNS, 2e5)
			require.InDelta(t, c.off, seen.OffNS, offBound)
		}
	}
	require.NoError(t, d.keep(nil))
	seen := next(2)
	t.Logf("without the driver: %+v", seen)
	require.InDelta(t, last, seen.Share, 20, "the quota holds on")
}
