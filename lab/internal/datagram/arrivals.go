package datagram

import (
	"math"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// arrival is a datagram that arrived.
type arrival struct {
	at       testbed.Instant
	sequence uint64
}

// Arrivals holds the figures of the datagrams that arrived between two instants.
type Arrivals struct {
	Count uint64 `json:"count"`
	// PerSecond is the rate of datagrams from the first to the last, which is exact also for few datagrams.
	PerSecond float64 `json:"per_second"`
	// Lost is the number of missing datagrams between the first and the last.
	Lost int64 `json:"lost"`
	// Late is the number of datagrams that arrived behind a later one.
	Late uint64 `json:"late"`

	// The gaps are between each datagram of a group and the one before that group.
	Group     int           `json:"group"`
	Median    time.Duration `json:"gap_median_ns"`
	P5        time.Duration `json:"gap_p5_ns"`
	P95       time.Duration `json:"gap_p95_ns"`
	Longest   time.Duration `json:"gap_longest_ns"` // between two datagrams
	Deviation float64       `json:"gap_deviation"`  // standard, over the mean

	Refused uint32  `json:"refused"`     // at the receiver's own buffer, since its start
	CPU     float64 `json:"cpu_seconds"` // CPU time of the process
}

// Part returns the arrived part of the datagrams sent between the first and the last, or 0 for none.
func (a Arrivals) Part() float64 {
	return float64(a.Count) / max(float64(int64(a.Count)+a.Lost), 1)
}

// count computes the figures of the datagrams that arrived between two instants.
func count(all []arrival, from, to testbed.Instant, group int) Arrivals {
	var came []arrival
	for _, a := range all {
		if a.at >= from && a.at < to {
			came = append(came, a)
		}
	}
	group = max(group, 1)
	f := Arrivals{Count: uint64(len(came)), Group: group}
	if len(came) < 2 {
		return f
	}
	first, last := came[0], came[len(came)-1]
	f.PerSecond = float64(len(came)-1) / last.at.Sub(first.at).Seconds()
	var gaps []time.Duration
	newest := first.sequence
	for _, a := range came {
		if a.sequence < newest {
			f.Late++
		}
		newest = max(newest, a.sequence)
	}
	f.Lost = int64(newest-first.sequence) + 1 - int64(len(came))
	for i := 1; i < len(came); i++ {
		f.Longest = max(f.Longest, came[i].at.Sub(came[i-1].at))
		if i%group == 0 {
			gaps = append(gaps, came[i].at.Sub(came[i-group].at))
		}
	}
	f.Median, f.P5, f.P95 = testbed.Percentile(gaps, 50), testbed.Percentile(gaps, 5), testbed.Percentile(gaps, 95)
	var sum, squares float64
	for _, g := range gaps {
		sum += float64(g)
	}
	mean := sum / float64(max(len(gaps), 1))
	for _, g := range gaps {
		squares += (float64(g) - mean) * (float64(g) - mean)
	}
	if len(gaps) > 1 {
		f.Deviation = math.Sqrt(squares/float64(len(gaps)-1)) / mean
	}
	return f
}
