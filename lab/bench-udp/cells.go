package udp

import (
	"github.com/netnice/netnice/lab/internal/bench"
)

// These limiters are compared with netnice.
const (
	limiterHTB = "htb" // on the sending device; for ingress on an ifb
	limiterTBF = "tbf" // on the sending device
)

func knownLimiters() []string {
	return []string{bench.None, limiterHTB, limiterTBF, bench.Netnice}
}

// offered is the rate to a limiter that is measured alone, as a multiple of the limit.
const offered = 3

// axes returns the axes of the requested run.
func axes(o bench.Options) []bench.Axes {
	var (
		v4     = []bool{false}
		v6     = []bool{true}
		none   = []string{bench.None}
		ours   = []string{bench.Netnice}
		two    = []string{limiterHTB, bench.Netnice}
		three  = []string{limiterHTB, limiterTBF, bench.Netnice}
		large  = []int{1400}
		small  = []int{200}
		sizes  = []int{1400, 200}
		all    = []uint64{64e3, 1e6, 10e6, 100e6}
		middle = []uint64{1e6, 10e6}
		shares = []float64{0.2, 0.5, 0.7, 3}
	)
	switch {
	case o.Quick:
		return []bench.Axes{
			over(none, []uint64{0}, bench.Up, large, []float64{0}, v4),
			over(three, []uint64{1e6}, bench.Up, large, []float64{offered}, v4),
			over(ours, []uint64{1e6}, bench.Down, large, []float64{offered}, v4),
			over(ours, []uint64{1e6}, bench.Mix, large, []float64{0.2, 3}, v4),
		}
	case o.All:
		both := []bool{false, true}
		return []bench.Axes{
			over(none, []uint64{0}, bench.Up, sizes, []float64{0}, both),
			over(three, all, bench.Up, sizes, []float64{offered}, both),
			over(none, []uint64{0}, bench.Down, sizes, []float64{0}, both),
			over(two, all, bench.Down, sizes, []float64{offered}, both),
			over(two, all, bench.Mix, sizes, shares, both),
		}
	}
	return []bench.Axes{ // a sample of the axes of -all
		over(none, []uint64{0}, bench.Up, sizes, []float64{0}, v4),
		over(two, []uint64{64e3}, bench.Up, large, []float64{offered}, v4),
		over(three, middle, bench.Up, large, []float64{offered}, v4),
		over(two, []uint64{100e6}, bench.Up, large, []float64{offered}, v4),
		over(ours, all, bench.Up, small, []float64{offered}, v4),
		over(ours, middle, bench.Up, large, []float64{offered}, v6),
		over(ours, []uint64{64e3}, bench.Down, large, []float64{offered}, v4),
		over(two, middle, bench.Down, large, []float64{offered}, v4),
		over(ours, []uint64{100e6}, bench.Down, large, []float64{offered}, v4),
		over(ours, []uint64{10e6}, bench.Down, small, []float64{offered}, v6),
		over(two, []uint64{1e6}, bench.Mix, large, shares, v4),
		over(two, []uint64{10e6}, bench.Mix, large, []float64{0.2, 3}, v4),
		over(ours, []uint64{10e6}, bench.Mix, large, []float64{0.5, 0.7}, v4),
	}
}

// over returns axes of datagrams in one direction.
func over(limiters []string, rates []uint64, way bench.Way, sizes []int, offers []float64, families []bool) bench.Axes {
	a := bench.Axes{Limiters: limiters, Rates: rates, Families: families}
	for _, size := range sizes {
		for _, offer := range offers {
			a.Datagrams = append(a.Datagrams, bench.Datagrams{PayloadBytes: size, Way: way, Offered: offer})
		}
	}
	return a
}
