package adapt

import "time"

// Probe is what became of two probe packets that were sent one right behind the other.
type Probe struct {
	At    time.Duration // since any fixed moment: when that was known
	Bytes int           // IP bytes of the second one
	Lost  int           // how many of the two were lost, 0 to 2
	RTT   time.Duration // of the first that came back; 0 = none did
	Gap   time.Duration // between the two as they came back; 0 = one did not
}

// Config is what the law goes by. Rates are in bytes/s.
type Config struct {
	Start float64 // to begin with, as it was measured or guessed
	// Capacity is the path's behind a token bucket that was seen, 0 = not known: a bucket hides for long
	// that more is sent.
	Capacity float64
	Least    float64 // never less
	Most     float64 // never more; 0 = any
	// RoundTrip is one that was seen lately, 0 = none: what was sent to measure may wait in the
	// path's queue still, and would be taken for its length.
	RoundTrip time.Duration
	// Share is the part of the path's capacity that is kept beside traffic which takes
	// whatever is left, such as TCP; 0.1 to 1.
	Share float64
	// Yields: what is sent gives way to loss by itself, as TCP does.
	Yields bool
}

// Mode is what the law does.
type Mode string

const (
	// ModeDelay keeps the queue of the path short, and takes what the others leave.
	ModeDelay Mode = "delay"
	// ModeShare keeps to the share, since others fill the queue whatever is sent here.
	ModeShare Mode = "share"
)

const (
	// packet is how large the packets are that wait in the path, for bounds in time.
	packet = 1500.0
	// shortest and queuedPackets bound the queueing delay that is aimed at from below: enough
	// for the path to be always busy, at the resolution of time and of packets that there is.
	shortest      = 4 * time.Millisecond
	queuedPackets = 1.25
	// giveWay is how much longer the queue may be, in parts, for who has nothing of the path.
	giveWay = 2
	// given is the part of the capacity that is sent while it is tried what others take.
	given = 0.1
	// unseen is how much more than the path's capacity is sent while a token bucket may hide that:
	// one of mostSaved bytes, or of what the path carries in savedFor.
	unseen    = 1.2
	mostSaved = 64e3
	savedFor  = 4 * time.Second
	// tooFast is how much more than the capacity is sent where the queue that follows is our own.
	tooFast = 1.2
	// faster bounds how much more than before is sent at a time.
	faster = 1.25
	// pressing is the part of the time that a queue beyond the aim has to stand, for others to
	// be suspected of filling it.
	pressing = 0.6
	// lossy is the part of the probes that is lost where those who fill the queue do not give
	// way to the share, or more is sent than the path carries, whatever its delay seems to be.
	lossy = 0.12
	// lossyShort is that part where fewer than fewPackets wait.
	lossyShort, fewPackets = 0.25, 6
	// drained is how many times what waited has to go unsent to tell that others fill the queue, if some
	// waits still.
	drained = 2
	// remembered is how long it counts that others took whatever was left.
	remembered = 20 * time.Second
	// baseFor is after how long a round trip that was not seen again is forgotten, twice at most.
	baseFor = 30 * time.Second
	// longest is the round trip of the longest path there is, by two geostationary satellites, which have
	// 1.0 to 1.1 s: what takes longer waits.
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

	// of the path
	base, baseNext time.Duration // the least round trip, of this period and of the next
	baseSince      time.Duration
	srtt           time.Duration
	queue          time.Duration // smoothed queueing delay
	lastQueue      time.Duration
	drift          float64   // of the queueing delay, s/s
	pairs          []float64 // bytes/s, of the newest that met a queue
	capacity       float64   // 0 = not known
	lost           []bool    // of the newest packets

	// of the control
	begun           bool
	last            time.Duration // of the last step
	every           time.Duration // between steps
	sent, available float64       // smoothed: what is sent, what the others leave
	saved           float64       // bytes that a token bucket may hold
	overshot        time.Duration // when more was sent than the path carries; never = not yet
	answered        float64       // what was sent when an answer came at last
	lowered         time.Duration // an aim below the usual one, since the path's buffer is small; 0 = none
	lossAt          time.Duration // when a loss was answered; never = not yet
	idleSince       time.Duration // since when there is no queue; never = there is one
	pressed         float64       // part of the time, lately, that the queue was beyond the aim
	dip             dip
	shareSince      time.Duration
	shareEnded      time.Duration // never = not yet, or it was a mistake
	retryAt         time.Duration // not before that the share is doubted
	patience        time.Duration
	average, raised float64 // of what yields, in share mode: bytes/s, and times the share that it may send
}

// New returns a law that begins with cfg.Start.
func New(cfg Config) *Law {
	l := &Law{
		cfg: cfg, mode: ModeDelay, rate: cfg.Start, available: cfg.Start, capacity: cfg.Capacity, base: cfg.RoundTrip,
		lossAt: never, idleSince: never, overshot: never, shareEnded: never, patience: firstPatience, raised: 1,
	}
	if cfg.RoundTrip > longest { // before anything was sent: others have filled the queue
		l.mode, l.rate = ModeShare, cfg.Share*cfg.Start
	}
	return l
}

const firstPatience = 10 * time.Second

// State is what the law knows, for people. Rates are in bytes/s.
type State struct {
	Mode             Mode
	Rate             float64
	Sent             float64
	Capacity         float64 // of the path; 0 = not known yet
	Base, Queue, Aim time.Duration
	Lost             float64 // part of the newest probes
	Dark             bool    // nothing comes back
	Window           int     // packets that may be on their way at a time, 0 = any number
}

// State returns it.
func (l *Law) State() State {
	return State{Mode: l.mode, Rate: l.rate, Sent: l.sent, Capacity: l.capacity, Base: l.base, Queue: l.queue, Aim: l.aim(), Lost: l.lossRate(), Dark: l.dark()}
}

// Step takes what became of a probe, and what was sent to the destination since the last in
// bytes/s, and returns how fast may be sent from now on.
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

// part is how much of a deviation a smoothed figure follows in dt.
func part(dt, over time.Duration) float64 {
	return min(1, dt.Seconds()/over.Seconds())
}

// tau is the time in which a deviation of the queue is made good.
func (l *Law) tau() time.Duration { return max(4*l.srtt, 400*time.Millisecond, l.packets(8)) }

// packets is the time that the path takes for so many full packets.
func (l *Law) packets(n float64) time.Duration {
	return time.Duration(n * packet / l.path() * 1e9)
}

// path is the capacity as far as it is known.
func (l *Law) path() float64 {
	if l.capacity > 0 {
		return l.capacity
	}
	return max(l.rate, 1)
}

// aim is the queueing delay that is steered to, longer for who has less of the path: of several
// laws that share a bottleneck, and so its queue, who has more then gives way to who has less.
func (l *Law) aim() time.Duration {
	left := 1 - min(l.sent/l.path(), 1)
	want := time.Duration(float64(l.least()) * (1 + giveWay*left*left))
	if l.lowered > 0 {
		want = min(want, l.lowered)
	}
	return want
}

// least is the aim of who has all of the path.
func (l *Law) least() time.Duration { return max(shortest, l.packets(queuedPackets)) }

// busyFrom is the delay from which on a packet has waited for others.
func (l *Law) busyFrom() time.Duration { return max(time.Millisecond, l.aim()/3) }
