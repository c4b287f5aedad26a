package probe

import (
	"context"
	"time"
)

// available measures the capacity that other traffic leaves. It sends trains whose first packets fill a small queue, and
// looks whether the queue grows.
func (m *measurement) available(ctx context.Context) error {
	capacity := m.result.Capacity.BytesPerSec
	size := m.o.Size
	for size > 600 && m.serviceTime(size) > 100*time.Millisecond {
		size /= 2
	}
	least, most := 0.0, capacity
	offered := 0.6 * capacity
	var trends []trend
	lossy := m.result.Lost > m.filtered // losses without filtered packets: the queue is short
	full, more := false, 1.0
	last, sent := m.path.now(), m.result.Train.bytes()
	for tries := 0; len(trends) < trainsLeft && tries < 2*trainsLeft; tries++ {
		if err := m.pause(ctx, sent); err != nil {
			return err
		}
		n := min(max(int(secondsLeft*offered)/size, 24), m.longestTrain())
		// The bucket has refilled meanwhile, as far as other traffic left tokens.
		refilled := m.path.now().Sub(last).Seconds() * max(m.result.Available.BytesPerSec, 0.3*capacity)
		if full {
			refilled = float64(m.result.BurstBytes)
		}
		fill, step := 6, 0.3
		if lossy {
			fill, step = 2, 0.15
		}
		first := fill + int(min(float64(m.result.BurstBytes), refilled)*more)/size
		t, err := m.send(ctx, plan{first: first, packets: n, size: size, bytesPerSec: offered})
		if err != nil {
			return err
		}
		last, sent = m.path.now(), t.bytes()
		lossy = lossy || t.Lost() > 0
		if !t.waited(first-1, m.base[size], capacity) && more < 3 {
			// The bucket had more tokens than assumed, so the train shows nothing.
			full, more = true, more*1.3
			continue
		}
		capacity = m.tail.beside(trends)
		m.result.Capacity.PlusMinus *= capacity / m.result.Capacity.BytesPerSec
		m.result.Capacity.BytesPerSec = capacity
		found := t.trend(first, offered, capacity, m.base[size])
		switch {
		case found.atLeast:
			least = max(least, offered)
		case found.atMost:
			most = min(most, offered)
		default:
			trends = append(trends, found)
		}
		m.summarize(trends, least, most)
		a := m.result.Available.BytesPerSec
		offered = min(max(a+step*(capacity-a), 0.1*capacity), capacity)
		if found.atLeast {
			offered = min(max(offered, least+0.75*(capacity-least)), capacity)
		}
		if len(trends) >= 4 && m.result.Available.PlusMinus < max(0.04*m.result.Available.BytesPerSec, 0.005*capacity) {
			break
		}
	}
	return nil
}

func (m *measurement) summarize(trends []trend, least, most float64) {
	capacity := m.result.Capacity.BytesPerSec
	mean, deviation := trimmed(trends)
	switch {
	case len(trends) == 0 && least > 0:
		mean, deviation = least, (capacity-least)/2
	case len(trends) == 0:
		mean, deviation = most/2, most/2
	}
	// A single train, or contradicting bounds, give little certainty.
	if len(trends) == 1 {
		deviation = max(deviation, capacity/4)
	}
	deviation = max(deviation, min(least, capacity)-mean)
	m.result.Available = Figure{BytesPerSec: mean, PlusMinus: deviation}
	m.tell("available", mean)
}
