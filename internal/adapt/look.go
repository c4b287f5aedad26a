package adapt

import (
	"slices"
	"time"
)

// look updates the state of the path from a probe.
func (l *Law) look(p Probe, dt time.Duration) {
	for i := range 2 {
		l.lost = append(l.lost, i < p.Lost)
	}
	l.lost = newest(l.lost, lossesKept)
	if p.RTT == 0 {
		return
	}
	l.lookAtBase(p)
	if l.srtt == 0 {
		l.srtt = p.RTT
	}
	l.srtt += (p.RTT - l.srtt) / 8
	queue := p.RTT - l.base
	if dt > 0 {
		l.drift += ((queue-l.lastQueue).Seconds()/dt.Seconds() - l.drift) * part(dt, max(200*time.Millisecond, l.packets(4)))
	}
	l.lastQueue = queue
	l.queue += (queue - l.queue) / 3
	if p.Gap > 0 && queue > l.busyFrom() {
		l.lookAtPair(p)
	}
}

// lookAtBase updates the round trip of the empty path: the least one of the last one to two periods.
func (l *Law) lookAtBase(p Probe) {
	if p.At-l.baseSince > max(baseFor, l.dipEvery()*5/4) { // each dip shows the empty path again
		l.base, l.baseNext, l.baseSince = l.baseNext, 0, p.At
	}
	if l.base == 0 || p.RTT < l.base {
		l.base = p.RTT
	}
	if l.baseNext == 0 || p.RTT < l.baseNext {
		l.baseNext = p.RTT
	}
	l.base = min(l.base, longest)
}

// lookAtPair updates the capacity. Two packets that wait in a busy path come out as far apart as the bottleneck
// takes to send the second. This holds behind a token bucket, too, because a bucket with a backlog is empty.
func (l *Law) lookAtPair(p Probe) {
	l.pairs = newest(append(l.pairs, float64(p.Bytes)/p.Gap.Seconds()), pairsKept)
	if len(l.pairs) >= 3 {
		sorted := slices.Sorted(slices.Values(l.pairs))
		l.capacity = sorted[len(sorted)/2]
	}
}

// lossRate returns the lost part of the newest probes.
func (l *Law) lossRate() float64 {
	n := 0
	for _, lost := range l.lost {
		if lost {
			n++
		}
	}
	return float64(n) / lossesKept
}

// dark reports whether none of the newest probes came back.
func (l *Law) dark() bool {
	const probes = 10
	return len(l.lost) >= 2*probes && !slices.Contains(l.lost[len(l.lost)-2*probes:], false)
}

// keepDark lowers the rate while no probe comes back. The path may be down, or hide probes that it did not hide
// before, or this traffic itself may leave no room for them. Therefore the rate is at most half of the rate at the
// latest answer.
func (l *Law) keepDark() {
	l.rate = min(l.rate, max(l.answered/2, l.cfg.Least))
	l.available = l.rate
}

func newest[T any](list []T, n int) []T {
	if over := len(list) - n; over > 0 {
		return slices.Delete(list, 0, over)
	}
	return list
}
