package adapt

import "time"

// keepQueue steers to a short queue.
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

// answersLoss makes the aim shorter where packets are lost although the queue is about as
// short as wanted: the path holds no more.
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
		return false // others filled it
	}
	if loss := l.lossRate(); loss > lossy { // it was full from the start, so its delay is not seen
		l.rate = max(min(l.rate, l.sent*(1-loss)*0.8), given*l.capacity)
		l.available = l.rate
		return true
	}
	l.lowered = max(time.Millisecond, l.packets(0.4), min(l.aim(), l.queue*6/10))
	l.rate *= 0.93
	l.available = min(l.available, l.rate)
	return true
}

// save counts what a token bucket in the path may have kept of what was not sent: until that is used
// up no queue tells that more is sent than the path carries.
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
		return // what was not sent says nothing, nor what does not arrive
	}
	grow := l.aim().Seconds() / l.tau().Seconds()
	if idle := p.At - l.idleSince; idle > max(3*l.srtt, 500*time.Millisecond, l.packets(4)) {
		grow = 0.3
		if l.capacity == 0 {
			grow = 0.7 // it was never reached
		}
		if l.capacity > 0 && l.rate > 0.95*l.capacity && idle < max(2*time.Second, l.packets(12)) {
			grow = 0.06 // it may be that the queue is only not seen
		}
	}
	// Also where the last probe was long ago, since nothing was sent.
	more := l.rate * min(grow*dt.Seconds()/l.tau().Seconds(), faster-1)
	if l.saved > 0 {
		more = max(min(more, l.capacity*unseen-l.rate), 0)
	}
	l.rate += more
	l.available = l.rate
	if l.saved <= 0 && l.capacity > 0 && l.sent > 1.05*l.capacity { // it is more by now
		l.capacity, l.pairs = l.sent, l.pairs[:0]
	}
}

// steer sends what the others leave, and so much more or less that the queue comes to the aim
// within tau.
func (l *Law) steer(dt time.Duration) {
	if l.queue < l.aim() && l.sent < 0.8*l.rate {
		return // who sends less than they may are not what the queue follows
	}
	// A queue that does not grow is one that is full, if packets are lost.
	through := l.sent
	if l.queue > l.aim()*3/2 {
		through *= 1 - l.lossRate()
	}
	// It carries what comes through, whatever pairs say: those that others' packets came in between
	// say less.
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

// press counts the time with a queue beyond the aim.
func (l *Law) press(dt time.Duration) {
	beyond := 0.0
	if l.queue > l.aim()*6/5 {
		beyond = 1
	}
	l.pressed += (beyond - l.pressed) * part(dt, max(2*l.srtt, 1500*time.Millisecond, l.packets(10)))
}
