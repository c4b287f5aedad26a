package probe

import (
	"context"
	"math"
	"slices"
	"time"
)

// tail is the end of a train that was sent faster than it arrived. In the tail the packets arrived at the rate of the
// bottleneck.
type tail struct {
	bytesPerSec     float64
	sentBytesPerSec float64 // rate at which the tail was sent
	// spread is half the difference between the rates of the tail's halves.
	spread  float64
	packets int
	spanNS  int64
	// free is the number of bytes before the tail, which a token bucket let pass at once.
	free int
	// queued says that a queue grew. Otherwise bytesPerSec is only the rate of sending.
	queued bool
}

// arrivals returns the times of the answered packets of a train, in order of sending.
func (t Train) arrivals() (sent, came []int64) {
	for _, r := range t.Replies {
		if !r.Lost {
			sent, came = append(sent, r.SentNS), append(came, r.Arrived())
		}
	}
	return sent, came
}

// Lost returns the part of the train that was not answered.
func (t Train) Lost() float64 {
	n := 0
	for _, r := range t.Replies {
		if r.Lost {
			n++
		}
	}
	return float64(n) / float64(max(len(t.Replies), 1))
}

func (t Train) bytes() int { return t.Size * len(t.Replies) }

// tail finds the knee in the arrivals of a train sent back to back, and the rate after it.
// Behind a token bucket the arrivals are a steep line, as long as there are tokens, and then a
// flat one; the knee is where the curve is farthest from the chord between its ends.
func (t Train) tail() tail {
	sent, came := t.arrivals()
	n := len(came)
	if n < 4 {
		return tail{}
	}
	span := float64(came[n-1] - came[0])
	if span <= 0 {
		return tail{}
	}
	knee, far := knee(came)
	if far < 0.1*span {
		knee = 0
	}
	service := span / float64(n-1)
	result := t.tailBehind(sent, came, knee, 0.5*service)
	result.queued = result.queued && result.bytesPerSec < 0.8*result.sentBytesPerSec
	if result.queued {
		return result
	}
	// The train was sent hardly faster than it arrived. Packets that all waited for longer than a busy machine
	// explains arrived at the rate of the bottleneck.
	return t.tailBehind(sent, came, knee, max(4*service, 200e3))
}

// knee returns the packet behind which the others arrived at the rate of the bottleneck. Far is the distance of its
// arrival from the chord in ns. Without tokens in a bucket it may be any packet.
func knee(came []int64) (knee int, far float64) {
	n := len(came)
	span := float64(came[n-1] - came[0])
	for i := range came {
		chord := span * float64(i) / float64(n-1)
		if d := chord - float64(came[i]-came[0]); d > far {
			knee, far = i, d
		}
	}
	return knee, far
}

// tailBehind returns the end of a train behind the packet knee: the packets that waited in a queue for more
// than waiting ns. The field queued is set only if all packets of the tail waited so long.
func (t Train) tailBehind(sent, came []int64, knee int, waiting float64) tail {
	n := len(came)
	// Where the queue was empty, the sender decided the times, and it may have been interrupted.
	least := came[0] - sent[0]
	for i := range came {
		least = min(least, came[i]-sent[i])
	}
	last := knee
	for i := n - 1; i > knee; i-- {
		if float64(came[i]-sent[i]-least) < waiting {
			last = i
			break
		}
	}
	// The tail begins a little later, because the first packet behind the knee waited for only a part of its tokens.
	begin := min(last+1+(n-last)/16, n-3)
	result := tail{packets: n - begin, spanNS: came[n-1] - came[begin]}
	if result.spanNS <= 0 {
		return tail{}
	}
	result.bytesPerSec = slope(came[begin:], t.Size)
	// The bytes before the point where the tail's line would have begun passed at once.
	result.free = max(0, (begin-1)*t.Size-int(result.bytesPerSec*float64(came[begin]-came[0])/1e9))
	half := begin + (n-begin)/2
	if n-half >= 3 && half-begin >= 3 {
		result.spread = math.Abs(slope(came[begin:half+1], t.Size)-slope(came[half:], t.Size)) / 2
	}
	grew := (came[n-1] - sent[n-1]) - (came[begin] - sent[begin])
	result.sentBytesPerSec = slope(sent[begin:], t.Size)
	result.queued = grew > 0 && begin > last
	return result
}

// arrived returns the rate at which a whole train arrived, 0 if it cannot be determined.
func (t Train) arrived() float64 {
	_, came := t.arrivals()
	n := len(came)
	if n < 4 || came[n-1] <= came[0] {
		return 0
	}
	return float64(n-1) * float64(t.Size) * 1e9 / float64(came[n-1]-came[0])
}

// slope returns the rate in bytes/s of packets of one size that arrived at these times. It fits a line by least
// squares, so that one late packet at an end does not decide.
func slope(came []int64, size int) float64 {
	n := float64(len(came))
	meanI, meanT := (n-1)/2, 0.0
	for _, c := range came {
		meanT += float64(c-came[0]) / n
	}
	var cov, variance float64
	for i, c := range came {
		d := float64(i) - meanI
		cov += d * (float64(c-came[0]) - meanT)
		variance += d * d
	}
	if cov <= 0 {
		return math.Inf(1)
	}
	return float64(size) * 1e9 * variance / cov
}

// trend is the result of one train at a fixed rate: an estimate of the capacity beside other traffic.
type trend struct {
	// leftBytesPerSec is the rate that the bottleneck carries beside the other traffic.
	leftBytesPerSec float64
	seconds         float64 // duration of the data behind the estimate
	// growth is the ratio of the train's time of arrival to its time of sending, at sentBytesPerSec; 0
	// where packets were lost.
	growth, sentBytesPerSec float64
	// atLeast and atMost say that the result is only a bound. The queue ran empty at once (atLeast), or packets were
	// lost at once (atMost).
	atLeast, atMost bool
}

// trend evaluates a train whose first packets filled a queue, and whose other packets were sent at
// offered bytes/s. While the queue is not empty the bottleneck is always busy, so the
// delay grows by (offered + others' - capacity) / capacity. The rate left by others is then
// offered - capacity x growth. Base is the delay without a queue, in nanoseconds.
func (t Train) trend(first int, offered, capacity float64, base int64) trend {
	service := float64(t.Size) / capacity * 1e9
	end, empty := len(t.Replies), false
	for i := first; i < len(t.Replies); i++ {
		r := t.Replies[i]
		if !r.Lost && float64(r.Arrived()-r.SentNS-base) < 0.5*service {
			end, empty = i, true
			break
		}
	}
	part := Train{Size: t.Size, Replies: t.Replies[first:end]}
	sent, came := part.arrivals()
	if len(came) < 4 || empty && len(came) < (len(t.Replies)-first)/3 {
		return trend{leftBytesPerSec: offered, atLeast: empty, atMost: !empty}
	}
	some := max(1, len(came)/20)
	sentSpan := mean(sent[len(sent)-some:], sent[0]) - mean(sent[:some], sent[0])
	cameSpan := mean(came[len(came)-some:], came[0]) - mean(came[:some], came[0])
	if sentSpan <= 0 || cameSpan <= 0 {
		return trend{leftBytesPerSec: offered, atLeast: true}
	}
	// Others' packets that came to the queue in the time of sending left it in the time of
	// arrival. The queue dropped the same part of ours and of others' packets.
	ours := float64(len(came)-some) * float64(t.Size) * 1e9
	others := max(capacity*cameSpan-ours, 0) / sentSpan / (1 - part.Lost())
	left := capacity - others
	if growing := offered - capacity*(cameSpan/sentSpan-1); part.Lost() == 0 {
		left = growing // the same figure without the rounding error of the number of packets
	}
	result := trend{leftBytesPerSec: min(max(left, 0), capacity), seconds: sentSpan / 1e9}
	if part.Lost() > 0 {
		result.seconds /= 5 // the assumption of equal losses holds on average at best
	} else {
		result.growth, result.sentBytesPerSec = cameSpan/sentSpan, offered
	}
	return result
}

// beside corrects the rate of a tail for packets of other traffic that arrived among it. The tail of a
// train that is sent at s arrives at s x capacity / (s + others'). This rate is less than the capacity where s
// is not far above it. A second train at another rate gives both unknowns: the ratio of the time of
// arrival to the time of sending is (s + others') / capacity. A much faster train is
// over before others send as much as this formula assumes (at ten times the capacity: 4% too much).
func (t tail) beside(trends []trend) (capacity float64) {
	var growth, sent, weight float64
	for _, r := range trends {
		if r.growth > 0 {
			growth, sent, weight = growth+r.growth*r.seconds, sent+r.sentBytesPerSec*r.seconds, weight+r.seconds
		}
	}
	if weight == 0 || t.sentBytesPerSec > 5*t.bytesPerSec {
		return t.bytesPerSec
	}
	growth, sent = growth/weight, sent/weight
	slower, faster := t.sentBytesPerSec-sent, t.sentBytesPerSec/t.bytesPerSec-growth
	if slower < 0.3*t.sentBytesPerSec || faster <= 0 {
		return t.bytesPerSec // the rates of the trains are too similar
	}
	// The others' rate is at least 0, and at most the capacity.
	most := t.bytesPerSec * t.sentBytesPerSec / (t.sentBytesPerSec - t.bytesPerSec)
	return min(max(slower/faster, t.bytesPerSec), most)
}

// waited reports whether a packet waited in a queue, or was dropped at its end.
func (t Train) waited(i int, base int64, capacity float64) bool {
	r := t.Replies[i]
	return r.Lost || float64(r.Arrived()-r.SentNS-base) > 1.5*float64(t.Size)/capacity*1e9
}

func mean(values []int64, zero int64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v - zero) // differences keep the digits of a float
	}
	return sum / float64(len(values))
}

// leastDelay returns the least delay of a train's packets in ns; false if none was answered.
func (t Train) leastDelay() (int64, bool) {
	least, ok := int64(math.MaxInt64), false
	for _, r := range t.Replies {
		if !r.Lost {
			least, ok = min(least, r.Arrived()-r.SentNS), true
		}
	}
	return least, ok
}

// Pairs measures by the method of the paper's module, for comparison. It returns the median rate of n pairs of packets
// that are sent back to back.
func (p *Prober) Pairs(ctx context.Context, n, size int) (bytesPerSec float64, err error) {
	var rates []float64
	for range n {
		t, err := p.Train(ctx, 2, size, 0)
		if err != nil {
			return 0, err
		}
		a, b := t.Replies[0], t.Replies[1]
		if gap := b.Arrived() - a.Arrived(); !a.Lost && !b.Lost && gap > 0 {
			rates = append(rates, float64(size)*1e9/float64(gap))
		}
		// The pause lets the next pair meet the path without our own earlier packets.
		if err := p.sleep(ctx, 10*time.Millisecond+2*max(a.RoundTrip(), b.RoundTrip(), 0)); err != nil {
			return 0, err
		}
	}
	return median(rates), nil
}

// BusyPairs sends n pairs at the interval apart: a small packet and a packet of size bytes right behind it. Where
// both find room in a busy path, they come out as far apart as the bottleneck takes to send the second one. BusyPairs
// returns the median rate of the pairs that came until quiet after the last one, 0 with fewer than three pairs.
func (p *Prober) BusyPairs(ctx context.Context, n, size int, apart, quiet time.Duration) (bytesPerSec float64, err error) {
	type answer struct {
		pair, i int
		Reply
	}
	answers := make(chan answer, 2*n)
	for pair := range n {
		for i, size := range []int{p.MinSize(), size} {
			if _, err := p.Send(size, func(r Reply) { answers <- answer{pair, i, r} }); err != nil {
				return 0, err
			}
		}
		if err := p.sleep(ctx, apart); err != nil {
			return 0, err
		}
	}
	arrived := make([][2]int64, n)
	over := time.After(quiet)
	for open := true; open; {
		select {
		case a := <-answers:
			if !a.Lost {
				arrived[a.pair][a.i] = a.Arrived()
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-over:
			open = false
		}
	}
	var rates []float64
	for _, at := range arrived {
		if at[0] != 0 && at[1] > at[0] {
			rates = append(rates, float64(size)*1e9/float64(at[1]-at[0]))
		}
	}
	if len(rates) < 3 {
		return 0, nil
	}
	return median(rates), nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// around returns the median of rates, and the distance of each rate from it.
func around(rates []float64) (rate float64, distances []float64) {
	rate = median(rates)
	for _, r := range rates {
		distances = append(distances, math.Abs(r-rate))
	}
	return rate, distances
}

// trimmed returns the mean of the trends, weighted by seconds, and its standard error. With five trends or more it
// leaves out the lowest and the highest.
func trimmed(trends []trend) (mean, deviation float64) {
	s := slices.SortedFunc(slices.Values(trends), func(a, b trend) int {
		switch {
		case a.leftBytesPerSec < b.leftBytesPerSec:
			return -1
		case a.leftBytesPerSec > b.leftBytesPerSec:
			return 1
		}
		return 0
	})
	if len(s) >= 5 {
		s = s[1 : len(s)-1]
	}
	var sum, weight float64
	for _, t := range s {
		sum, weight = sum+t.leftBytesPerSec*t.seconds, weight+t.seconds
	}
	if weight == 0 {
		return 0, 0
	}
	mean = sum / weight
	for _, t := range s {
		deviation += (t.leftBytesPerSec - mean) * (t.leftBytesPerSec - mean) * t.seconds / weight
	}
	return mean, math.Sqrt(deviation / float64(max(len(s)-1, 1)))
}
