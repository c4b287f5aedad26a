package adapt

import "time"

// held is the gate that traffic waits at, with the window that says when it may leave.
type held struct {
	gate    Gate
	window  *window
	allowed uint64
	at      time.Duration // when that was said
}

const (
	// gateLooks is how often a gate is looked at while the path sends a packet.
	gateLooks = 8
	// gateRenew is how often it is told the same again, so that it knows that somebody is there.
	gateRenew = 200 * time.Millisecond
	// A window that ended is not tried again before, nor one that there was no gate for.
	windowPause, gatePause = 3 * time.Second, 2 * time.Second
)

// tend opens a window where one is called for, or has it go on.
func (r *runner) tend() {
	now := time.Since(r.begun)
	h := r.held
	if h == nil {
		r.hold(now)
		return
	}
	if r.law.mode != ModeShare {
		r.release()
		return
	}
	h.window.share, h.window.path = r.share(), r.law.path()
	h.window.expire(now)
	if h.window.judge(now) {
		r.release()
		r.holdAgain = now + max(windowPause, r.law.packets(12))
		return
	}
	h.window.more(now)
	r.allow(now)
}

// hold begins a window, if few packets are the share and there is a gate.
func (r *runner) hold(now time.Duration) {
	l := r.law
	if l.mode != ModeShare || now < r.holdAgain || l.capacity == 0 || l.path() > fastest ||
		l.last-l.shareSince < 2*l.srtt || l.queue < l.aim()/2 || l.sent < 0.5*l.rate {
		return
	}
	packets := windowFor(r.share(), l.srtt)
	if packets > mostWindow {
		return
	}
	r.holdAgain = now + gatePause
	gate, err := r.traffic.Gate(l.packets(1) / gateLooks)
	if err != nil {
		return
	}
	left, err := gate.Left()
	if err != nil {
		r.drop(gate)
		return
	}
	r.held = &held{gate: gate, window: newWindow(packets, r.share(), l.path(), left, l.srtt, now)}
	r.allow(now)
	if r.held != nil && r.limit(r.ceiling(l.rate)) != nil {
		r.release() // the next step tells
	}
}

// share is what the window should give, in bytes/s.
func (r *runner) share() float64 {
	share := r.law.cfg.Share * r.law.path()
	if most := r.law.cfg.Most; most > 0 {
		share = min(share, most)
	}
	return share
}

// ceiling is how fast the traffic may be at most, given the law's rate.
func (r *runner) ceiling(rate float64) uint64 {
	if r.held != nil {
		rate *= mostOver
	}
	if most := r.law.cfg.Most; most > 0 {
		rate = min(rate, most)
	}
	return uint64(max(rate, 1))
}

// release lets the traffic leave by its rate again.
func (r *runner) release() {
	if r.held == nil {
		return
	}
	h := r.held
	r.held = nil
	r.drop(h.gate)
}

// drop closes a gate. What was with it has gone if that fails.
func (r *runner) drop(gate Gate) { _ = gate.Close() }

// allow tells the gate, if there is something new.
func (r *runner) allow(now time.Duration) {
	h := r.held
	allowed := h.window.allowed()
	if allowed == h.allowed && now-h.at < gateRenew {
		return
	}
	if m := h.window.leads(now); m != nil {
		r.mark(m)
	}
	if h.gate.Allow(allowed) != nil {
		r.release()
		return
	}
	h.allowed, h.at = allowed, now
}

// mark sends a probe of the window's. One that cannot be sent is as one that is lost.
func (r *runner) mark(m *mark) {
	w := r.held.window
	_ = r.path.Send(r.path.MinSize(), func(a Answer) {
		if a.Lost {
			return
		}
		select {
		case r.out <- came{w, m, m.at + a.RoundTrip}:
		default:
		}
	})
}

// came is a probe that has come back.
type came struct {
	of   *window
	mark *mark
	at   time.Duration
}

// moved delivers a value when something has left by the gate.
func (r *runner) moved() <-chan struct{} {
	if r.held == nil {
		return nil
	}
	return r.held.gate.Moved()
}

// follow sends a probe behind what has left.
func (r *runner) follow() {
	h := r.held
	if h == nil {
		return
	}
	left, err := h.gate.Left()
	if err != nil || left < h.window.left { // it is another by now
		r.release()
		return
	}
	if m := h.window.follows(left, time.Since(r.begun)); m != nil {
		r.mark(m)
	}
}

// cameOut notes that a probe has come back.
func (r *runner) cameOut(c came) {
	if r.held == nil || r.held.window != c.of {
		return
	}
	c.of.answer(c.mark, c.at)
	r.allow(time.Since(r.begun))
}
