package egress

import (
	"slices"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// These limiters limit only egress.
const (
	limiterHTB = "htb" // on the device: all of its programs together
	limiterTBF = "tbf" // likewise
)

func knownLimiters() []string {
	return []string{bench.None, limiterHTB, limiterTBF, bench.Trickle, bench.Netnice}
}

// axes returns the axes of the requested run.
func axes(o bench.Options) []bench.Axes {
	const ms = time.Millisecond
	var (
		near   = []time.Duration{0}
		v4     = []bool{false}
		none   = []string{bench.None}
		two    = []string{limiterHTB, bench.Netnice}
		four   = []string{limiterHTB, limiterTBF, bench.Trickle, bench.Netnice}
		both   = []string{"cubic", "bbr"}
		cubic  = []string{"cubic"}
		clean  = []float64{0}
		losing = []float64{0.01}
		far    = []time.Duration{20 * ms, 100 * ms, 300 * ms}
		ends   = []int{1, 16}
		all    = []uint64{1, 16e3, 128e3, 1e6, 10e6, 100e6, 1250e6}
	)
	if o.RTTs != nil {
		far = o.RTTs
	}
	if o.Losses != nil {
		clean, losing = o.Losses, o.Losses
	}
	shares := bench.Over(two, []uint64{1e6, 10e6, 100e6}, []int{16}, cubic, v4, near, []float64{0})
	shares.Shares = true
	switch {
	case o.Quick:
		shares.Rates = []uint64{10e6}
		return []bench.Axes{
			bench.Over(none, []uint64{0}, ends, cubic, v4, near, []float64{0}),
			bench.Over(two, []uint64{1e6, 100e6}, ends, cubic, v4, near, []float64{0}),
			shares,
			bench.Over(two, []uint64{1e6}, []int{4}, cubic, v4, []time.Duration{100 * ms}, []float64{0}),
		}
	case o.All:
		rtts, losses := append(slices.Clone(near), far...), []float64{0, 0.01}
		if o.Losses != nil {
			losses = o.Losses
		}
		conns, cc, families := []int{1, 4, 16, 64}, []string{"cubic", "bbr", "reno"}, []bool{false, true}
		return []bench.Axes{
			bench.Over(none, []uint64{0}, conns, cc, families, rtts, losses),
			bench.Over(four, all, conns, cc, families, rtts, losses),
			shares,
		}
	case o.RTTs != nil || o.Losses != nil: // the requested distances
		return []bench.Axes{
			bench.Over(none, []uint64{0}, ends, both, v4, far, clean),
			bench.Over(two, []uint64{128e3, 1e6, 10e6, 100e6}, ends, both, v4, far, clean),
		}
	}
	return []bench.Axes{ // a sample of the axes of -all
		bench.Over(none, []uint64{0}, ends, both, v4, near, clean),
		bench.Over([]string{bench.Netnice}, []uint64{1, 16e3}, []int{1}, cubic, v4, near, clean),
		bench.Over(two, []uint64{128e3}, []int{4}, both, v4, near, clean),
		bench.Over(four, []uint64{1e6, 10e6}, ends, cubic, v4, near, clean),
		bench.Over(two, []uint64{1e6, 100e6, 1250e6}, ends, both, v4, near, clean),
		bench.Over(two, []uint64{10e6}, []int{64}, []string{"reno"}, []bool{true}, near, clean),
		shares,
		bench.Over(two, []uint64{1e6, 10e6}, []int{4}, cubic, v4, far, clean),
		bench.Over(two, []uint64{1e6}, []int{1}, []string{"bbr"}, v4, far, clean),
		bench.Over(two, []uint64{100e6}, []int{4}, cubic, []bool{true}, far[:1], clean),
		bench.Over(none, []uint64{0}, []int{16}, []string{"bbr"}, v4, far[:1], losing),
		bench.Over(two, []uint64{1e6}, []int{16}, []string{"bbr"}, v4, far[:min(2, len(far))], losing),
	}
}
