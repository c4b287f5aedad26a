package adapt

import "time"

// keepQueue makes a step in ModeDelay: it steers to a short queue.
func (l *Law) keepQueue(p Probe, dt time.Duration) {
	if p.At < l.dip.settled {
		return
	}
	l.press(dt)
	switch {
	case p.Lost > 0 && l.answersLoss(p):
	case l.queue < l.busyFrom():
		l.findMore(p, dt)
	default:
		l.idleSince = never
		l.steer(dt)
		l.suspect(p)
	}
	if l.dip.on {
		return
	}
	if length := l.dipDue(p); length > 0 {
		l.beginDip(p, length)
	}
}

// answersLoss reacts to a loss, and reports whether it did. It shortens the aim where packets are lost although the
// queue is about as short as the aim: the path's buffer holds no more.
func (l *Law) answersLoss(p Probe) bool {
	if l.lossAt != never && p.At-l.lossAt < max(l.srtt, 300*time.Millisecond, l.packets(2)) {
		return false
	}
	l.lossAt = p.At
	if p.Lost == 2 && l.capacity == 0 { // too fast from the start
		l.rate *= 0.5
		l.available = l.rate
		return true
	}
	if l.queue > l.aim()*3/2 {
		return false // other senders filled the queue
	}
	if loss := l.lossRate(); loss > lossy { // the queue was full from the start, so its delay does not show
		l.rate = max(min(l.rate, l.sent*(1-loss)*0.8), given*l.capacity)
		l.available = l.rate
		return true
	}
	l.lowered = max(time.Millisecond, l.packets(0.4), min(l.aim(), l.queue*6/10))
	l.rate *= 0.93
	l.available = min(l.available, l.rate)
	return true
}

// save counts the tokens that a bucket in the path may have saved while less than the capacity was sent. Until they
// are used up, no queue shows that more is sent than the path carries.
func (l *Law) save(sent float64, dt time.Duration) {
	if l.capacity == 0 || l.queue >= l.busyFrom() {
		l.saved = 0
		return
	}
	most := min(mostSaved, savedFor.Seconds()*l.capacity)
	l.saved = min(max(l.saved+(l.capacity-sent)*dt.Seconds(), 0), most)
}

// findMore raises the rate while there is no queue.
func (l *Law) findMore(p Probe, dt time.Duration) {
	if l.idleSince == never {
		l.idleSince = p.At
	}
	if l.lowered > 0 && p.At-l.lossAt > 10*time.Second {
		l.lowered += time.Duration(float64(l.lowered) * 0.2 * dt.Seconds())
	}
	if l.sent < 0.8*l.rate || l.lossRate() > lossy {
		return // unused or lost bytes do not show that the path carries more
	}
	grow := l.aim().Seconds() / l.tau().Seconds()
	if idle := p.At - l.idleSince; idle > max(3*l.srtt, 500*time.Millisecond, l.packets(4)) {
		grow = 0.3
		if l.capacity == 0 {
			grow = 0.7 // the capacity was never reached
		}
		if l.capacity > 0 && l.rate > 0.95*l.capacity && idle < max(2*time.Second, l.packets(12)) {
			grow = 0.06 // there may be a queue that the probes do not see
		}
	}
	// The bound also holds after a long time without probes because nothing was sent.
	more := l.rate * min(grow*dt.Seconds()/l.tau().Seconds(), faster-1)
	if l.saved > 0 {
		more = max(min(more, l.capacity*unseen-l.rate), 0)
	}
	l.rate += more
	l.available = l.rate
	if l.saved <= 0 && l.capacity > 0 && l.sent > 1.05*l.capacity { // the capacity has grown
		l.capacity, l.pairs = l.sent, l.pairs[:0]
	}
}

// steer sets the rate to the capacity that other senders leave, corrected so that the queue reaches the aim within
// tau.
func (l *Law) steer(dt time.Duration) {
	if l.queue < l.aim() && l.sent < 0.8*l.rate {
		return // the queue does not follow a sender that uses less than its rate
	}
	// A queue that loses packets and does not grow is full.
	through := l.sent
	if l.queue > l.aim()*3/2 {
		through *= 1 - l.lossRate()
	}
	// The path carries at least the bytes that come through, also if the pairs show less. A pair with packets of other
	// senders in between shows too low a capacity.
	if l.capacity > 0 && l.drift < 0.05 {
		l.capacity = max(l.capacity, 0.98*through/(1+max(l.drift, 0)))
	}
	capacity := l.path()
	left := min(max(through-capacity*l.drift, 0), capacity)
	l.available += (left - l.available) * part(dt, l.tau()/2)
	l.rate = l.available + capacity*(l.aim()-l.queue).Seconds()/l.tau().Seconds()
	l.rate = min(l.rate, capacity*1.05, l.sent*faster+capacity*0.02)
	least := given
	if l.remembers() {
		least = l.cfg.Share
	}
	l.rate = max(l.rate, least*capacity)
}

// press smooths the part of the time in which the queue is beyond the aim.
func (l *Law) press(dt time.Duration) {
	beyond := 0.0
	if l.queue > l.aim()*6/5 {
		beyond = 1
	}
	l.pressed += (beyond - l.pressed) * part(dt, max(2*l.srtt, 1500*time.Millisecond, l.packets(10)))
}
