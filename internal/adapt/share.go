package adapt

import "time"

// share begins to keep the share.
func (l *Law) share(p Probe) {
	l.mode, l.shareSince, l.pressed, l.idleSince = ModeShare, p.At, 0, never
	l.lost = l.lost[:0]
	l.keepShare(p)
}

// doubtful is the part of the probes that is lost where others do not give way to the share. In a
// queue of few packets TCP lives with losses, and so does who is beside it.
func (l *Law) doubtful() float64 {
	if l.queue < l.packets(fewPackets) {
		return lossyShort
	}
	return lossy
}

// remembers: not long ago others took whatever was left.
func (l *Law) remembers() bool { return l.shareEnded != never && l.last-l.shareEnded < remembered }

// keepShare keeps to the share, as long as others fill the path, and give way to it.
func (l *Law) keepShare(p Probe) {
	if l.capacity > 0 {
		l.rate = l.cfg.Share * l.capacity
	}
	l.available = l.rate
	if l.queue >= l.aim()/2 {
		l.idleSince = never
	} else if l.idleSince == never {
		l.idleSince = p.At
	}
	switch {
	case l.idleSince != never && p.At-l.idleSince > max(3*l.srtt, time.Second, l.packets(6)):
		l.mode, l.shareEnded, l.patience, l.dip.ended = ModeDelay, p.At, firstPatience, p.At
	case p.At-l.shareSince > 2*time.Second && p.At > l.retryAt && l.lossRate() > l.doubtful():
		l.mode, l.shareEnded = ModeDelay, never
		l.rate = given * l.path()
		l.available = l.rate
		l.retryAt, l.patience = p.At+l.patience, min(2*l.patience, time.Minute)
	}
}

const (
	// evenFor is over how long what yields is to come to the share on average: some of its turns.
	evenFor, evenPackets = 3 * time.Second, 24
	// mostRaised is how much faster than the path it may be meanwhile: what TCP sends at once has room then.
	mostRaised = 2
)

// even is how many times the share what yields may be for now: it is slower at other times, and would have
// far less than the share by a ceiling there.
func (l *Law) even(sent float64, dt time.Duration) float64 {
	if !l.cfg.Yields || l.mode != ModeShare {
		return 1
	}
	if l.capacity == 0 {
		return l.raised
	}
	share, over := l.cfg.Share*l.capacity, max(evenFor, l.packets(evenPackets))
	l.average += (min(sent, l.capacity) - l.average) * part(dt, over)
	l.raised *= 1 + (1-l.average/share)*part(dt, over)
	l.raised = min(max(l.raised, 1), mostRaised/l.cfg.Share)
	return l.raised
}
