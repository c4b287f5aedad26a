package adapt

import "time"

// Probe is the outcome of a pair of probe packets that were sent back to back.
type Probe struct {
	At    time.Duration // when the outcome was known, since any fixed moment
	Bytes int           // IP bytes of the second one
	Lost  int           // how many of the two were lost, 0 to 2
	RTT   time.Duration // round trip of the first answer; 0 = no answer came
	Gap   time.Duration // between the two answers; 0 = at least one is missing
}

// Config holds the parameters of the law. Rates are in bytes/s.
type Config struct {
	Start float64 // initial rate, measured or guessed
	// Capacity is the capacity of a path on which a token bucket was seen, 0 = not known. A bucket hides for a
	// long time that more is sent than the path carries.
	Capacity float64
	Least    float64 // lowest rate
	Most     float64 // highest rate; 0 = no bound
	// RoundTrip is a recent round trip, 0 = none. Packets of an earlier measurement may still wait in the
	// path's queue, and the law would take their delay for the length of the path.
	RoundTrip time.Duration
	// Share is the part of the path's capacity that the law keeps beside competing traffic, 0.1 to 1. Such traffic, for
	// example TCP, takes all the capacity that is left.
	Share float64
	// Yields says that the traffic itself slows down at a loss, as TCP does.
	Yields bool
}

// Mode is the aim that the law steers by.
type Mode string

const (
	// ModeDelay keeps the queue of the path short, and takes the capacity that other senders leave.
	ModeDelay Mode = "delay"
	// ModeShare keeps to the share, because other senders fill the queue at any rate of this one.
	ModeShare Mode = "share"
)

const (
	// packet is the assumed size in bytes of the packets in the path's queue. It turns bounds in packets into
	// times.
	packet = 1500.0
	// shortest and queuedPackets bound the target of the queueing delay from below. The bound keeps the path
	// always busy at the resolution of the clock and of whole packets.
	shortest      = 4 * time.Millisecond
	queuedPackets = 1.25
	// giveWay is the factor of the extra target delay of a sender that has nothing of the path.
	giveWay = 2
	// given is the part of the capacity that the law sends during a dip, to see how much other senders take. It is also
	// the lowest rate that the law goes to because of a queue or losses in ModeDelay.
	given = 0.1
	// unseen is the rate, in parts of the path's capacity, that the law may send while a token bucket may hide
	// the excess. The assumed bucket holds mostSaved bytes, or the bytes that the path carries in savedFor.
	unseen    = 1.2
	mostSaved = 64e3
	savedFor  = 4 * time.Second
	// tooFast is the rate, in parts of the capacity, from which on the law takes the next queue for its own.
	tooFast = 1.2
	// faster bounds the growth of the rate in one step.
	faster = 1.25
	// pressing is the part of the time with a queue beyond the aim from which on the law suspects that other
	// senders fill it.
	pressing = 0.6
	// lossy is the part of the probes that is lost where the senders that fill the queue do not yield to the
	// share. At any delay, the same part tells that more is sent than the path carries.
	lossy = 0.12
	// lossyShort replaces lossy where fewer than fewPackets wait.
	lossyShort, fewPackets = 0.25, 6
	// drained is a multiple of the backlog. If the law holds back that many bytes and packets still wait, other
	// senders fill the queue.
	drained = 2
	// remembered is how long the law remembers that other senders took all the capacity that was left.
	remembered = 20 * time.Second
	// baseFor is the time after which the law forgets a least round trip that did not come again; it takes two of
	// these at most.
	baseFor = 30 * time.Second
	// longest is the round trip of the longest path there is: two geostationary satellites have 1.0 to 1.1 s.
	// The rest of a longer round trip is queueing.
	longest    = 1200 * time.Millisecond
	pairsKept  = 16
	lossesKept = 40
)

const never = time.Duration(-1)

// Law is the law of control for one destination. It is not safe for concurrent use.
type Law struct {
	cfg  Config
	mode Mode
	rate float64

	// State of the path:
	base, baseNext time.Duration // the least round trip, of this period and of the next
	baseSince      time.Duration
	srtt           time.Duration
	queue          time.Duration // smoothed queueing delay
	lastQueue      time.Duration
	drift          float64   // growth of the queueing delay, s/s
	pairs          []float64 // rates in bytes/s by the newest pairs that met a queue
	capacity       float64   // 0 = not known
	lost           []bool    // losses among the newest packets

	// State of the control:
	begun           bool
	last            time.Duration // time of the last step
	every           time.Duration // smoothed time between steps
	sent, available float64       // smoothed rates: sent here, and left by other senders
	saved           float64       // bytes that a token bucket may hold
	overshot        time.Duration // when more was sent than the path carries; never = not yet
	answered        float64       // rate sent when the latest answer came
	lowered         time.Duration // an aim below the usual one, since the path's buffer is small; 0 = none
	lossAt          time.Duration // when the law last reacted to a loss; never = not yet
	idleSince       time.Duration // since when there is no queue; never = there is one
	pressed         float64       // part of the recent time with a queue beyond the aim
	dip             dip
	shareSince      time.Duration
	shareEnded      time.Duration // never = not yet, or it was a mistake
	retryAt         time.Duration // earliest time at which the law may doubt the share again
	patience        time.Duration
	average, raised float64 // yielding traffic in share mode: its bytes/s, and its rate as a multiple of the share
}

// New returns a law that begins with cfg.Start.
func New(cfg Config) *Law {
	l := &Law{
		cfg: cfg, mode: ModeDelay, rate: cfg.Start, available: cfg.Start, capacity: cfg.Capacity, base: cfg.RoundTrip,
		lossAt: never, idleSince: never, overshot: never, shareEnded: never, patience: firstPatience, raised: 1,
	}
	if cfg.RoundTrip > longest { // nothing was sent yet, so other senders have filled the queue
		l.mode, l.rate = ModeShare, cfg.Share*cfg.Start
	}
	return l
}

const firstPatience = 10 * time.Second

// State is a view of the law for people. Rates are in bytes/s.
type State struct {
	Mode             Mode
	Rate             float64
	Sent             float64
	Capacity         float64 // the path's; 0 = not known yet
	Base, Queue, Aim time.Duration
	Lost             float64 // lost part of the newest probes
	Dark             bool    // no probe is answered
	Window           int     // packets that may be in flight at a time, 0 = any number
}

// State returns the law's present state.
func (l *Law) State() State {
	return State{Mode: l.mode, Rate: l.rate, Sent: l.sent, Capacity: l.capacity, Base: l.base, Queue: l.queue, Aim: l.aim(), Lost: l.lossRate(), Dark: l.dark()}
}

// Step takes the outcome of a probe, and the rate in bytes/s that was sent to the destination since the last
// step. It returns the rate that may be sent from now on.
func (l *Law) Step(p Probe, sent float64) float64 {
	dt := p.At - l.last
	if !l.begun {
		l.begun, dt, l.sent, l.baseSince, l.dip.ended = true, 0, sent, p.At, p.At
	}
	l.last = p.At
	l.every += (dt - l.every) / 8
	l.look(p, dt)
	l.save(sent, dt)
	if p.At >= l.dip.settled {
		l.sent += (sent - l.sent) * part(dt, l.tau()/2)
	}
	switch {
	case l.dark():
		l.keepDark()
	case l.dip.on:
		l.goOn(p)
	case l.mode == ModeShare:
		l.keepShare(p)
	default:
		l.keepQueue(p, dt)
	}
	if p.RTT > 0 {
		l.answered = l.sent
	}
	l.rate = max(l.rate, l.cfg.Least)
	if l.cfg.Most > 0 {
		l.rate = min(l.rate, l.cfg.Most)
	}
	return l.rate * l.even(sent, dt)
}

// part returns the fraction of a deviation that a smoothed figure follows in dt.
func part(dt, over time.Duration) float64 {
	return min(1, dt.Seconds()/over.Seconds())
}

// tau returns the time in which the law corrects a deviation of the queue.
func (l *Law) tau() time.Duration { return max(4*l.srtt, 400*time.Millisecond, l.packets(8)) }

// packets returns the time that the path takes for n full packets.
func (l *Law) packets(n float64) time.Duration {
	return time.Duration(n * packet / l.path() * 1e9)
}

// path returns the capacity, or the present rate where the capacity is not known.
func (l *Law) path() float64 {
	if l.capacity > 0 {
		return l.capacity
	}
	return max(l.rate, 1)
}

// aim returns the queueing delay that the law steers to. It is longer for a sender with a smaller part of the
// path. Several laws that share a bottleneck see the same queue, so the larger sender gives way to the smaller.
func (l *Law) aim() time.Duration {
	left := 1 - min(l.sent/l.path(), 1)
	want := time.Duration(float64(l.least()) * (1 + giveWay*left*left))
	if l.lowered > 0 {
		want = min(want, l.lowered)
	}
	return want
}

// least returns the aim of a sender that has all of the path.
func (l *Law) least() time.Duration { return max(shortest, l.packets(queuedPackets)) }

// busyFrom returns the delay from which on a packet has waited behind others.
func (l *Law) busyFrom() time.Duration { return max(time.Millisecond, l.aim()/3) }
