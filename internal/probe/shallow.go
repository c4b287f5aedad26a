package probe

import (
	"context"
	"errors"
	"math"
	"slices"
)

// A path with room for a few packets loses most of a train. The rest arrives at first at the pace of a
// bucket's stored tokens, which is neither a rate nor a bound of one. But the packets that waited arrived one
// behind the other, as far apart as the bottleneck takes to send one. The number of lost packets between them does not
// matter.

// ErrDropped says that the path drops all packets beyond its capacity, and queues none.
var ErrDropped = errors.New("what comes too fast is dropped at once, and nothing waits: no rate can be told")

const (
	shallowTrains = 24    // most trains
	shallowLeast  = 4     // least gaps for a figure
	shallowEnough = 40    // sufficient gaps: more add no precision
	shallowAgree  = 12    // sufficient gaps, if their trains agree
	shallowWithin = 0.005 // part of the rate within which trains agree
)

// gaps are the gaps between packets that waited, one behind the other, at the end of a train that was
// sent at once: their number, and their total length.
type gaps struct {
	n      int
	spanNS int64
}

// waitingGaps returns the gaps of a train's waiting packets. It leaves out the gap behind the last packet that did not
// wait, because tokens shortened that one.
func (t Train) waitingGaps() gaps {
	sent, came := t.arrivals()
	n := len(came)
	if n < 3 {
		return gaps{}
	}
	slices.Sort(came)
	begin, _ := knee(came)
	begin++
	if begin >= n-1 {
		return gaps{}
	}
	g := gaps{n: n - 1 - begin, spanNS: came[n-1] - came[begin]}
	// All packets must be sent before the first of these arrived; otherwise the gaps are the sender's.
	least := int64(math.MaxInt64)
	for i := range came {
		least = min(least, came[i]-sent[i])
	}
	if waited := came[begin+1] - sent[begin+1] - least; waited < g.spanNS/int64(2*g.n) {
		return gaps{}
	}
	return g
}

// shallow finds the capacity of a path whose queue has room for few packets, and which loses packets of a train.
func (m *measurement) shallow(ctx context.Context, last Train) error {
	n := max(2*int(math.Round(float64(len(last.Replies))*(1-last.Lost()))), firstTrain)
	var rates []float64
	var all gaps
	sentBytesPerSec := math.Inf(1)
	add := func(t Train) {
		g := t.waitingGaps()
		if g.n == 0 || g.spanNS <= 0 {
			return
		}
		all = gaps{n: all.n + g.n, spanNS: all.spanNS + g.spanNS}
		rates = append(rates, float64(g.n)*float64(t.Size)*1e9/float64(g.spanNS))
		sent, _ := t.arrivals()
		sentBytesPerSec = min(sentBytesPerSec, slope(sent, t.Size))
		m.result.Train = t
	}
	add(last)
	for t := last; m.result.Trains < shallowTrains; {
		rate, distances := around(rates)
		if all.n >= shallowEnough || all.n >= shallowAgree && len(rates) > 2 && median(distances) < shallowWithin*rate {
			break
		}
		if rate > 0 {
			m.result.Capacity.BytesPerSec = rate
			came, _ := t.arrivals() // lost packets did not use the path's capacity
			if err := m.pause(ctx, len(came)*m.o.Size); err != nil {
				return err
			}
			m.tell("capacity", rate)
		}
		var err error
		t, err = m.send(ctx, plan{packets: n, size: m.o.Size})
		if errors.Is(err, errSpent) {
			break
		}
		if err != nil {
			return err
		}
		add(t)
	}
	m.result.Capacity = Figure{}
	if all.n < shallowLeast {
		return ErrDropped
	}
	rate, distances := around(rates)
	if sentBytesPerSec < 1.5*rate {
		return nil
	}
	m.result.Capacity = Figure{BytesPerSec: rate, PlusMinus: median(distances)}
	m.tail = tail{bytesPerSec: rate, sentBytesPerSec: sentBytesPerSec, packets: all.n, spanNS: all.spanNS, queued: true}
	return nil
}
