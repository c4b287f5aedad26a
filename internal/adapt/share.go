package adapt

import "time"

// share switches the law to ModeShare.
func (l *Law) share(p Probe) {
	l.mode, l.shareSince, l.pressed, l.idleSince = ModeShare, p.At, 0, never
	l.lost = l.lost[:0]
	l.keepShare(p)
}

// doubtful returns the part of lost probes above which other senders do not yield to the share. In a queue of few
// packets TCP lives with losses, and so does any traffic beside it.
func (l *Law) doubtful() float64 {
	if l.queue < l.packets(fewPackets) {
		return lossyShort
	}
	return lossy
}

// remembers reports whether other senders took all the capacity that was left, less than remembered ago.
func (l *Law) remembers() bool { return l.shareEnded != never && l.last-l.shareEnded < remembered }

// keepShare keeps to the share as long as other senders fill the path and yield to the share.
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
	// evenFor is the time over which yielding traffic is to reach the share on average. It spans several of the
	// traffic's cycles of loss and recovery.
	evenFor, evenPackets = 3 * time.Second, 24
	// mostRaised bounds the rate meanwhile, as a multiple of the path's capacity. It leaves room for a burst that
	// TCP sends at once.
	mostRaised = 2
)

// even returns the rate of yielding traffic for now, as a multiple of the share. Such traffic is slower at other
// times, so a ceiling at the share would leave it far less than the share on average.
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
