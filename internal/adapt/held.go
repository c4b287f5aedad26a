package adapt

import "time"

// held is the gate at which traffic waits, and the window that decides when it may leave.
type held struct {
	gate    Gate
	window  *window
	allowed uint64
	at      time.Duration // when allowed was last sent to the gate
}

const (
	// gateLooks is how many times a gate looks for permission while the path sends one packet.
	gateLooks = 8
	// gateRenew is the interval at which the runner repeats the same permission, to show the gate that the runner
	// still lives.
	gateRenew = 200 * time.Millisecond
	// windowPause is the time from the end of a window to the next one, gatePause from a failed attempt to get a gate.
	windowPause, gatePause = 3 * time.Second, 2 * time.Second
)

// tend opens a window where the law calls for one, or updates the present one.
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

// hold begins a window, if the share is few packets and there is a gate.
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
		r.release() // the next step returns the error
	}
}

// share returns the rate that the window should give, in bytes/s.
func (r *runner) share() float64 {
	share := r.law.cfg.Share * r.law.path()
	if most := r.law.cfg.Most; most > 0 {
		share = min(share, most)
	}
	return share
}

// ceiling returns the highest rate of the traffic, given the law's rate.
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

// drop closes a gate. An error means that the gate's traffic has gone, too.
func (r *runner) drop(gate Gate) { _ = gate.Close() }

// allow sends the window's permission to the gate, if it is new or due for renewal.
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

// mark sends a probe of the window. A probe that cannot be sent counts as lost.
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

// moved returns a channel that delivers a value when a packet has left through the gate.
func (r *runner) moved() <-chan struct{} {
	if r.held == nil {
		return nil
	}
	return r.held.gate.Moved()
}

// follow sends a probe behind the packets that have left.
func (r *runner) follow() {
	h := r.held
	if h == nil {
		return
	}
	left, err := h.gate.Left()
	if err != nil || left < h.window.left { // another gate counts now
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
