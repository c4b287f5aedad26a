// Package due computes what the non-TCP traffic of one limit may send, by the clock that paces TCP.
//
// One limit holds for TCP and non-TCP traffic together. Packets that leave a queue are charged to that clock, in a class of
// their own. The clock is fair by construction, and knows what the class is due: the virtual time that passes, times the
// weight. The queue's rate follows that, so that the class stays a little ahead of the clock. Such a class counts as one that
// wants more, and takes what others leave.
package due

import (
	"time"

	"github.com/netnice/netnice/internal/bpf"
)

const (
	// Look is the time from one look at a clock to the next.
	Look = 100 * time.Millisecond
	// Packet is the usual size of a packet in IP bytes.
	Packet = 1500
	// MostOfLimit bounds a queue's rate, as a part of the limit.
	MostOfLimit = 1.002

	// ahead is how far ahead of the clock the class is kept, two packets at least. backTime is the time in which the
	// class gets back there.
	ahead    = 60 * time.Millisecond
	backTime = 500 * time.Millisecond
	// leastPackets is how many packets at the limit's rate are the least over which the clock's progress is measured,
	// and longest is the longest such time. Under a low limit, one packet takes longer than Look.
	leastPackets = 5
	longest      = 8 * time.Second
	// packetTime is the longest time for a packet at the queue's rate, unless that rate is a tenth of the limit. HTB
	// keeps the time that it has computed for a packet, though the rate is raised meanwhile.
	packetTime = 2 * time.Second
	// These are bounds of the queue's rate, as parts of what is due.
	leastOfDue, mostOfDue = 0.5, 1.25

	virtualShift = 20 // fraction bits of virtual time: NN_VTIME_SHIFT
)

// Progress holds the last readings of a clock.
type Progress struct {
	limit    uint64    // the readings are of the time in which this was the limit
	readings []reading // the oldest first
}

type reading struct{ timeNS, vtime, idleNS uint64 }

// Passage is how far a clock went between two readings. spanNS is 0 if that is not known, or if nothing was charged for
// long.
type Passage struct{ virtual, idleNS, spanNS float64 }

// Went takes the clock of a limit (bytes per second) as it is now, and returns how far it went recently.
func (p *Progress) Went(clock bpf.Clock, limit, nowNS uint64) (w Passage) {
	if p.limit != limit {
		p.limit, p.readings = limit, nil
	}
	now := reading{timeNS: clock.TimeNs, vtime: clock.Vtime, idleNS: clock.IdleNs}
	if n := len(p.readings); n == 0 || int64(now.timeNS-p.readings[n-1].timeNS) > 0 {
		p.readings = append(p.readings, now)
	}
	packetNS := Packet / float64(limit) * 1e9
	over := int64(min(max(float64(Look), leastPackets*packetNS), float64(longest)))
	for len(p.readings) > 2 && int64(now.timeNS-p.readings[1].timeNS) >= over {
		p.readings = p.readings[1:]
	}
	first := p.readings[0]
	span := int64(now.timeNS - first.timeNS)
	if float64(span) >= min(packetNS, float64(over)) && int64(nowNS-now.timeNS) < over {
		w = Passage{
			virtual: float64(now.vtime-first.vtime) / (1 << virtualShift),
			idleNS:  float64(now.idleNS - first.idleNS), spanNS: float64(span),
		}
	}
	return w
}

// Forget forgets the readings.
func (p *Progress) Forget() { p.readings = nil }

// Least returns the least rate of a class that shares a limit. Both are in bytes per second.
func Least(limit float64) float64 {
	return max(limit/100, min(limit/10, Packet/packetTime.Seconds()))
}

// Due returns what a class with this weight and guarantee may send. Rates are in IP bytes per second.
func (w Passage) Due(clock bpf.Clock, k bpf.Class, weightOf uint32, guarantee, limit, nowNS uint64) float64 {
	rate, weight := float64(limit), float64(weightOf)
	due := rate
	if w.spanNS > 0 {
		due = min(max((w.virtual*weight+w.idleNS/1e9*rate)/w.spanNS*1e9, Least(rate))+float64(guarantee), rate)
	}
	lead := 0.0
	if d := int64(k.Finish - clock.Vtime); d > 0 {
		lead = float64(d) / (1 << virtualShift) * weight
	}
	// Virtual time has gone on since the last charge.
	aheadNS := lead/due*1e9 - max(float64(int64(nowNS-clock.TimeNs)), 0)
	return max(Paced(due, aheadNS, 0, rate), Least(rate))
}

// Paced returns a rate near what is due. At this rate a class that is aheadNS ahead of its clock comes to be as far
// ahead as it should, and by moreNS further.
func Paced(due, aheadNS, moreNS, limit float64) float64 {
	wantNS := max(float64(ahead), 2*Packet/due*1e9) + moreNS
	factor := 1 + (wantNS-max(aheadNS, 0))/float64(backTime)
	return min(due*min(max(factor, leastOfDue), mostOfDue), limit*MostOfLimit)
}
