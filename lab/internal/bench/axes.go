package bench

import (
	"slices"
	"time"
)

// Axes holds the values whose combinations are cells.
type Axes struct {
	Limiters   []string
	Rates      []uint64
	Conns      []int
	Congestion []string
	Families   []bool // IPv6?
	RTTs       []time.Duration
	Losses     []float64
	Shares     bool
	Datagrams  []Datagrams // nil = TCP
}

// Over returns axes of one program.
func Over(limiters []string, rates []uint64, conns []int, congestion []string, families []bool, rtts []time.Duration, losses []float64) Axes {
	return Axes{Limiters: limiters, Rates: rates, Conns: conns, Congestion: congestion, Families: families, RTTs: rtts, Losses: losses}
}

func (a Axes) cells() []Cell {
	if a.Datagrams != nil {
		return a.datagramCells()
	}
	var out []Cell
	for _, loss := range a.Losses {
		for _, rtt := range a.RTTs {
			for _, rate := range a.Rates {
				for _, n := range a.Conns {
					for _, cc := range a.Congestion {
						for _, v6 := range a.Families {
							for _, l := range a.Limiters {
								out = append(out, Cell{Limiter: l, Rate: rate, Conns: n, Congestion: cc, Shares: a.Shares, IPv6: v6, RTT: rtt, Loss: loss})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// datagramCells returns the cells with datagrams, over a path without distance.
func (a Axes) datagramCells() []Cell {
	var out []Cell
	for _, rate := range a.Rates {
		for _, d := range a.Datagrams {
			for _, v6 := range a.Families {
				for _, l := range a.Limiters {
					out = append(out, Cell{Limiter: l, Rate: rate, Conns: 1, Congestion: "cubic", IPv6: v6, Datagrams: d})
				}
			}
		}
	}
	return out
}

// Cells makes the matrix of the cells that the options choose. Cells to compare are neighbours.
func (o Options) Cells(all []Axes) []Cell {
	var chosen []Cell
	seen := make(map[string]bool)
	for _, a := range all {
		for _, c := range a.cells() {
			c.IPv6 = c.IPv6 || o.IPv6
			if c.Limiter == None {
				c.Rate = 0
			}
			c.Interval = o.Interval + c.Settle() - time.Second
			if c.Rate > 0 && c.Rate < 1e6 {
				c.Interval += o.Interval
			}
			wanted := slices.Contains(o.Limiters, c.Limiter) && (o.Only == nil || o.Only.MatchString(c.Name()))
			if wanted && !seen[c.Name()] && c.sensible() {
				seen[c.Name()] = true
				chosen = append(chosen, c)
			}
		}
	}
	return chosen
}

// perCell is the time that a cell takes in addition to its traffic: for namespaces and processes.
const perCell = 350 * time.Millisecond

// Estimate returns the time that the cells take.
func Estimate(cells []Cell) time.Duration {
	sum := time.Second
	for _, c := range cells {
		sum += c.Interval + perCell
	}
	return sum
}

// Uses says whether any of the cells has this limiter.
func Uses(cells []Cell, limiter string) bool {
	return slices.ContainsFunc(cells, func(c Cell) bool { return c.Limiter == limiter })
}
