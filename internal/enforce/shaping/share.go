package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// One limit holds for TCP and non-TCP traffic together. Packets that leave the queue are charged to the clock that
// paces TCP, in a class of their own. The clock is fair by construction, and knows what that class is due: the virtual
// time that passes, times the weight. The queue's rate follows that, so that the class stays a little ahead of the
// clock. Such a class counts as one that wants more, and takes what others leave.

const (
	shareLook = 100 * time.Millisecond
	// shareAhead is how far ahead of the clock the class is kept, two packets at least. shareTime is the time in which
	// the class gets back there.
	shareAhead = 60 * time.Millisecond
	shareTime  = 500 * time.Millisecond
	shareQuiet = 10 // samples without new packets, after which a queue is unused
	// sharePackets is how many packets at the limit's rate are the least over which the clock's progress is measured,
	// and shareSpan the longest such time. Under a low limit, one packet takes longer than shareLook.
	sharePackets = 5
	shareSpan    = 2 * time.Second
	// sharePacket is the longest time for a packet at the queue's rate, unless that rate is a quarter of the limit. HTB
	// keeps the time that it has computed for a packet, though the rate is raised meanwhile.
	sharePacket = time.Second
	// These are bounds of the queue's rate, in parts of what is due and of the limit.
	leastOfDue, mostOfDue, mostOfLimit = 0.5, 1.25, 1.002

	virtualShift = 20 // fraction bits of virtual time: NN_VTIME_SHIFT
	usualWeight  = 100
)

// share is what the last samples showed of a node's clock.
type share struct {
	readings []reading // the oldest first
	weight   uint32
	bytes    uint64 // bytes that had come into the queue, or moved in it
	quiet    int    // samples since that count changed
}

// reading is the progress of a clock at a sample.
type reading struct{ timeNS, vtime, idleNS uint64 }

// due returns what the class may send, in IP bytes per second. It takes the clock and the class as they are now, and
// the limit.
func (s *share) due(clock bpf.Clock, k bpf.Class, limit uint64, nowNS uint64) float64 {
	went := s.went(clock, limit, nowNS)
	if k.Weight != 0 || s.weight == 0 {
		s.weight = max(k.Weight, 1)
		if k.Weight == 0 {
			s.weight = usualWeight
		}
	}
	return went.due(clock, k, s.weight, 0, limit, nowNS)
}

// passage is how far a clock went between two samples. spanNS is 0 if that is not known, or if nothing was charged for
// long.
type passage struct{ virtual, idleNS, spanNS float64 }

// went takes the clock as it is now, and returns how far it went in the last time.
func (s *share) went(clock bpf.Clock, limit, nowNS uint64) (w passage) {
	now := reading{timeNS: clock.TimeNs, vtime: clock.Vtime, idleNS: clock.IdleNs}
	if n := len(s.readings); n == 0 || int64(now.timeNS-s.readings[n-1].timeNS) > 0 {
		s.readings = append(s.readings, now)
	}
	over := int64(min(max(float64(shareLook), sharePackets*usualPacket/float64(limit)*1e9), float64(shareSpan)))
	for len(s.readings) > 2 && int64(now.timeNS-s.readings[1].timeNS) >= over {
		s.readings = s.readings[1:]
	}
	first := s.readings[0]
	if span := int64(now.timeNS - first.timeNS); span > 0 && int64(nowNS-now.timeNS) < over {
		w = passage{
			virtual: float64(now.vtime-first.vtime) / (1 << virtualShift),
			idleNS:  float64(now.idleNS - first.idleNS), spanNS: float64(span),
		}
	}
	return w
}

// leastDue returns the least rate of a class that shares a limit, in bytes per second.
func leastDue(limit float64) float64 {
	return max(limit/100, min(limit/4, usualPacket/sharePacket.Seconds()))
}

// due returns the same for one of several classes, which has the given weight (of) and guarantee.
func (w passage) due(clock bpf.Clock, k bpf.Class, of uint32, guarantee, limit, nowNS uint64) float64 {
	rate, weight := float64(limit), float64(of)
	due := rate
	if w.spanNS > 0 {
		due = min(max((w.virtual*weight+w.idleNS/1e9*rate)/w.spanNS*1e9, leastDue(rate))+float64(guarantee), rate)
	}
	ahead := 0.0
	if d := int64(k.Finish - clock.Vtime); d > 0 {
		ahead = float64(d) / (1 << virtualShift) * weight
	}
	// Virtual time has gone on since the last charge.
	aheadNS := ahead/due*1e9 - max(float64(int64(nowNS-clock.TimeNs)), 0)
	return max(paced(due, aheadNS, 0, rate), leastDue(rate))
}

// paced returns a rate near what is due. At this rate a class that is aheadNS ahead of its clock comes to be as far
// ahead as it should, and by moreNS further.
func paced(due, aheadNS, moreNS, limit float64) float64 {
	wantNS := max(float64(shareAhead), 2*usualPacket/due*1e9) + moreNS
	factor := 1 + (wantNS-max(aheadNS, 0))/float64(shareTime)
	return min(due*min(max(factor, leastOfDue), mostOfDue), limit*mostOfLimit)
}

// followShares keeps the queues' rates at what their classes are due, until stop is closed.
func (k *Kernel) followShares(what string, stop <-chan struct{}, adapt func() error) {
	tick := time.NewTicker(shareLook)
	defer tick.Stop()
	failing := ""
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		k.mu.Lock()
		err := adapt()
		k.mu.Unlock()
		if err != nil && err.Error() != failing {
			failing = err.Error()
			k.log.Warn("the share of "+what+" is not followed", "err", err)
		}
	}
}

// came reports whether something came into the queue recently, or moved in it. bytes counts that.
func (s *share) came(bytes uint64) bool {
	if bytes != s.bytes {
		s.bytes, s.quiet = bytes, 0
		return true
	}
	if s.quiet++; s.quiet > shareQuiet {
		s.readings = nil
		return false
	}
	return true
}

// look reads a node's clock and the class in it, and returns what the class is due. known is false if nothing was
// charged yet.
func (s *share) look(base *bpf.Object, key bpf.ClassKey, limit uint64) (due uint64, known bool, err error) {
	var clock bpf.Clock
	var k bpf.Class
	err = base.Clocks.Lookup(bpf.ClockKey{Node: key.Node, Direction: key.Direction}, &clock)
	if err == nil {
		err = base.Classes.Lookup(key, &k)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the clock of node %d: %w", key.Node, err)
	}
	return uint64(s.due(clock, k, limit, monotonicNS())), true, nil
}

// directionCeiling returns the lowest ceiling in one direction, 0 = none.
func directionCeiling(spec enforce.NodeSpec, d enforce.Direction) (rate uint64) {
	for _, limits := range spec.Ceilings {
		if r := limits[d].BytesPerSec; r != 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	return rate
}

func monotonicNS() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
