package hostpath

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/probe"
)

const (
	// mostStart bounds a starting rate that was only measured: a token bucket may have let the train pass. The rate then
	// doubles in a second.
	mostStart = 1_250_000
	// startFull is the starting rate for a path of which only one thing is known: its queue is full.
	startFull = 8000

	// A train measures the rate. The second half of the answered packets counts.
	trainPackets, trainBytes, trainPatience = 20, 1000, 2500 * time.Millisecond
	trainQuiet                              = 1200 * time.Millisecond
	// A train that a token bucket let pass slows down when the bucket is empty. The train shows this if the median of
	// its last trainEnd gaps is bucketSeen times the average gap in the second half. If the rate at the end exceeds the
	// starting rate's bound, there may be a larger bucket: a train of longPackets finds out.
	trainEnd, bucketSeen, longPackets, longQuiet = 5, 2, 70, 500 * time.Millisecond
	// Pairs of packets measure the whole capacity of a path whose queue is full. Other traffic has most of that
	// capacity, so a quarter of it is the starting rate.
	pairsSent, pairBytes, pairsApart, pairsQuiet, pairsPart = 20, 500, 25 * time.Millisecond, 300 * time.Millisecond, 4
)

// Measured is the result of one short measurement of a path.
type Measured struct {
	// BytesPerSec is the approximate rate at which packets leave the path. If its queue is Full, hardly any packet
	// leaves. BytesPerSec is then a part of the path's whole capacity, 0 if that could not be measured.
	BytesPerSec uint64
	Full        bool
	// Sustained: the path let the first packets pass faster, so BytesPerSec is its lasting capacity.
	Sustained bool
}

// Start returns the starting rate for a measured path, in bytes/s.
func (m Measured) Start() uint64 {
	rate := min(m.BytesPerSec, mostStart)
	if m.Full {
		rate = max(rate, startFull)
	}
	return rate
}

// Measure implements Path.
func (p *probedPath) Measure(ctx context.Context) (m Measured, err error) {
	cfg := p.cfg
	cfg.Timeout = trainPatience + 2*p.RoundTrip()
	other, err := probe.Open(ctx, cfg)
	if err != nil {
		return Measured{}, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	size := max(min(trainBytes, p.MaxSize()), p.MinSize())
	rate, emptied, err := p.train(ctx, other, trainPackets, size, trainQuiet)
	if err != nil {
		return Measured{}, err
	}
	if rate == 0 {
		size = max(min(pairBytes, p.MaxSize()), p.MinSize())
		rate, err := other.BusyPairs(ctx, pairsSent, size, pairsApart, pairsQuiet+2*p.RoundTrip())
		return Measured{BytesPerSec: uint64(rate / pairsPart), Full: true}, err
	}
	if rate > mostStart {
		again, isEmpty, err := p.train(ctx, other, longPackets, size, longQuiet)
		if err != nil {
			return Measured{}, err
		}
		if again > 0 {
			rate, emptied = min(rate, again), isEmpty
		}
	}
	return Measured{BytesPerSec: uint64(rate), Sustained: emptied}, nil
}

// train returns the rate at which one train leaves the path. emptied says that a token bucket let its first packets
// pass.
func (p *probedPath) train(ctx context.Context, by *probe.Prober, packets, size int, quiet time.Duration) (rate float64, emptied bool, err error) {
	train, err := by.TrainUntilQuiet(ctx, packets, size, 0, quiet+2*p.RoundTrip())
	if err != nil {
		return 0, false, err
	}
	var at []int64
	for _, r := range train.Replies {
		if !r.Lost {
			at = append(at, r.Arrived())
		}
	}
	slices.Sort(at)
	rate, emptied = trainRate(at, size)
	return rate, emptied, nil
}

// trainRate returns the rate at which the second half of a train left the path, in bytes/s. If the end of the train was
// far slower, it returns the rate of that. It returns 0 if too few packets arrived. at has the time of each arrival, in
// ns.
func trainRate(at []int64, size int) (rate float64, emptied bool) {
	at = at[len(at)/2:]
	last := len(at) - 1
	if last < 2 || at[last] == at[0] {
		return 0, false
	}
	rate = float64(last*size) / time.Duration(at[last]-at[0]).Seconds()
	var gaps []int64
	for i := max(1, len(at)-trainEnd); i <= last; i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	slices.Sort(gaps)
	usual := gaps[len(gaps)/2]
	if time.Duration(usual).Seconds()*rate < bucketSeen*float64(size) {
		return rate, false
	}
	from := last - len(gaps)/2
	for from > 0 && at[from]-at[from-1] > usual/2 {
		from--
	}
	return float64((last-from)*size) / time.Duration(at[last]-at[from]).Seconds(), true
}
