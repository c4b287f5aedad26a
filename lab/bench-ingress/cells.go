package ingress

import (
	"slices"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// These limiters limit only ingress.
const (
	limiterIFB    = "ifb"    // HTB on an ifb: the whole ingress of the device
	limiterPolice = "police" // drops the excess of a cgroup
)

func knownLimiters() []string {
	return []string{bench.None, limiterIFB, limiterPolice, bench.Trickle, bench.Netnice}
}

// axes returns the axes of the requested run.
func axes(o bench.Options) []bench.Axes {
	const ms = time.Millisecond
	var (
		near   = []time.Duration{0}
		v4     = []bool{false}
		none   = []string{bench.None}
		three  = []string{limiterIFB, limiterPolice, bench.Netnice}
		four   = []string{limiterIFB, limiterPolice, bench.Trickle, bench.Netnice}
		both   = []string{"cubic", "bbr"}
		cubic  = []string{"cubic"}
		bbr    = []string{"bbr"}
		clean  = []float64{0}
		losing = []float64{0.01}
		far    = []time.Duration{20 * ms, 100 * ms, 300 * ms}
		ends   = []int{1, 32}
		all    = []uint64{64e3, 1e6, 10e6, 125e6, 1250e6}
	)
	if o.RTTs != nil {
		far = o.RTTs
	}
	if o.Losses != nil {
		clean, losing = o.Losses, o.Losses
	}
	switch {
	case o.Quick:
		return []bench.Axes{
			bench.Over(none, []uint64{0}, []int{4}, cubic, v4, near, clean),
			bench.Over(three, []uint64{1e6, 125e6}, []int{4}, cubic, v4, near, clean),
			bench.Over(three, []uint64{10e6}, []int{4}, cubic, v4, []time.Duration{20 * ms}, clean),
		}
	case o.All:
		rtts, losses := append(slices.Clone(near), far...), []float64{0, 0.01}
		if o.Losses != nil {
			losses = o.Losses
		}
		conns := []int{1, 4, 32}
		return []bench.Axes{
			bench.Over(none, []uint64{0}, conns, both, v4, rtts, losses),
			bench.Over(four, all, conns, both, v4, rtts, losses),
		}
	case o.RTTs != nil || o.Losses != nil: // the requested distances
		return []bench.Axes{
			bench.Over(none, []uint64{0}, ends, both, v4, far, clean),
			bench.Over(three, []uint64{1e6, 10e6}, ends, both, v4, far, clean),
		}
	}
	return []bench.Axes{ // a sample of the axes of -all
		bench.Over(none, []uint64{0}, ends, cubic, v4, near, clean),
		bench.Over(three, []uint64{64e3}, []int{4}, cubic, v4, near, clean),
		bench.Over(four, []uint64{1e6, 10e6}, []int{1}, cubic, v4, near, clean),
		bench.Over(three, []uint64{1e6, 10e6}, []int{32}, cubic, v4, near, clean),
		bench.Over(three, []uint64{125e6}, []int{4}, both, v4, near, clean),
		bench.Over(three, []uint64{1250e6}, []int{4}, cubic, v4, near, clean),
		bench.Over(three, []uint64{10e6}, []int{4}, cubic, []bool{true}, near, clean),
		bench.Over(three, []uint64{1e6}, []int{4}, cubic, v4, far, clean),
		bench.Over(three, []uint64{10e6}, []int{4}, both, v4, far[:1], clean),
		bench.Over(none, []uint64{0}, []int{4}, bbr, v4, far[:1], losing),
		bench.Over(three, []uint64{1e6}, []int{4}, bbr, v4, far[:1], losing),
	}
}
