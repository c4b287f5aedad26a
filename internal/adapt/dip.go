package adapt

import "time"

// dip is a short time in which the law sends hardly anything, to see whether other senders take the freed
// capacity. If they do, they would take everything.
type dip struct {
	on                bool
	begun             time.Duration
	until             time.Duration
	rate, avail, sent float64 // before the dip
	queue             time.Duration
	looks             int  // probes in the second half
	queued            int  // probes in the second half that met a queue
	regular           bool // a dip without a suspicion was made
	ended             time.Duration
	settled           time.Duration // when the measurements show the end of the dip
}

// dipDue returns the length of the dip without a suspicion that is due now, 0 = none is due. Where other senders
// filled the queue from the start, the round trip of the empty path is not known. If the assumed base is long
// enough to contain a queue, the first dip is a long one.
func (l *Law) dipDue(p Probe) time.Duration {
	wait, length := max(3*time.Second, min(10*l.shortDip(), 15*time.Second), 2*l.shortDip()), l.shortDip()
	if l.dip.regular {
		wait = l.dipEvery()
	} else if l.base > l.least() {
		length = l.longDip()
	}
	if p.At-l.dip.ended < wait {
		return 0
	}
	l.dip.regular = true
	return length
}

// dipEvery returns the time between dips without a suspicion.
func (l *Law) dipEvery() time.Duration { return max(25*time.Second, 50*l.shortDip()) }

func (l *Law) shortDip() time.Duration {
	return max(2*l.srtt, 100*time.Millisecond, l.packets(4), 4*l.every)
}

// suspect looks whether other senders keep the queue full although this one sends less and less. It then switches
// to ModeShare, or begins a dip to find out.
func (l *Law) suspect(p Probe) {
	if l.sent > tooFast*l.path() {
		l.overshot = p.At
	}
	ours := l.overshot != never && p.At-l.overshot < max(time.Second, l.packets(20))
	if l.pressed < pressing || l.rate > 0.9*l.path() || ours {
		return
	}
	before := p.At - l.dip.ended
	switch {
	case l.remembers(), before < remembered && l.dip.rate > 0 && l.rate < 0.85*l.dip.rate:
		l.share(p)
	case before > max(3*time.Second, l.packets(20)):
		l.beginDip(p, l.longDip())
	}
}

func (l *Law) longDip() time.Duration { return max(l.shortDip(), 3*l.srtt, 500*time.Millisecond) }

func (l *Law) beginDip(p Probe, length time.Duration) {
	l.dip = dip{on: true, begun: p.At, until: p.At + length, rate: l.rate, avail: l.available, sent: l.sent, queue: l.queue, regular: l.dip.regular}
	l.rate = min(l.rate, given*l.path())
}

// stands returns the queueing delay within a dip beyond which other senders fill the queue. The bytes that the law
// held back may be far more than the backlog before the dip. The queue would then be empty unless other senders
// refilled it, and half the usual aim would be too high a threshold. The reason is that the law knows only the
// upper part of a queue that was full from the start.
func (l *Law) stands(p Probe) time.Duration {
	d := &l.dip
	usual := l.aim() / 2
	over := p.At - d.begun - l.srtt
	if unsent := time.Duration((d.sent - l.rate) / l.path() * float64(over)); unsent < drained*d.queue {
		return usual
	}
	return min(usual, max(l.least(), d.queue)/3)
}

// goOn makes a step within a dip, or ends it.
func (l *Law) goOn(p Probe) {
	d := &l.dip
	if p.At < d.until {
		if p.At > (d.begun+d.until)/2 && p.RTT > 0 {
			d.looks++
			if p.RTT-l.base > l.stands(p) {
				d.queued++
			}
		}
		return
	}
	d.on, d.ended, l.pressed, l.drift = false, p.At, 0, 0
	if d.looks > 0 && 2*d.queued > d.looks {
		l.share(p)
		return
	}
	l.available, l.rate, l.sent = d.avail, min(d.rate, d.avail), d.sent
	d.settled = p.At + l.srtt + 2*l.every
}
