package pacing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
)

// A class is paid when virtual time reaches its tag, at the rate divided among those that
// count as backlogged, itself included.
func TestPaidIn(t *testing.T) {
	const rate, now, weight = 1_000_000, 1_000_000_000_000, 100
	span := func(bytes uint64) uint64 { return bytes << virtualShift / weight }
	vtime := virtualTimeOf(1)
	at := func(ahead time.Duration) uint64 { return now + uint64(ahead) }
	for name, c := range map[string]struct {
		clock bpf.Clock
		class bpf.Class
		want  time.Duration
	}{
		"paid long ago": {
			clock: bpf.Clock{TimeNs: at(-10 * time.Millisecond), Vtime: vtime},
			class: bpf.Class{Finish: vtime - span(5000)}, want: -10 * time.Millisecond,
		},
		"alone, and counted": {
			clock: bpf.Clock{TimeNs: now, Vtime: vtime, ActiveWeight: weight},
			class: bpf.Class{Finish: vtime + span(10_000), Until: vtime + span(10_000), Weight: weight}, want: 10 * time.Millisecond,
		},
		"one of two": {
			clock: bpf.Clock{TimeNs: at(-time.Millisecond), Vtime: vtime, ActiveWeight: 2 * weight},
			class: bpf.Class{Finish: vtime + span(10_000), Until: vtime + span(10_000), Weight: weight}, want: 19 * time.Millisecond,
		},
		"not counted among one other": {
			clock: bpf.Clock{TimeNs: now, Vtime: vtime, ActiveWeight: weight},
			class: bpf.Class{Finish: vtime + span(10_000)}, want: 20 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, float64(c.want), float64(paidIn(c.clock, c.class, weight, rate, now)), 1e3)
		})
	}
}

// The lowest of several owners' ceilings holds, with the lowest of their bursts.
func TestHolding(t *testing.T) {
	var n bpf.Node
	rate, burst := holding(n, bpf.DirectionUp)
	require.Zero(t, rate+burst)
	n.Limits[0][bpf.DirectionUp] = bpf.Limit{CeilingBytesPerSec: 5, BurstBytes: 9}
	n.Limits[1][bpf.DirectionUp] = bpf.Limit{CeilingBytesPerSec: 4}
	rate, burst = holding(n, bpf.DirectionUp)
	require.EqualValues(t, 4, rate)
	require.EqualValues(t, 9, burst)
}
