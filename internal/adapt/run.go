package adapt

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Answer is the outcome of a probe packet.
type Answer struct {
	RoundTrip time.Duration
	Received  time.Time // when the answer came, as exactly as it is known
	Lost      bool
}

// Path sends probe packets to the destination.
type Path interface {
	// Send sends a packet of size IP bytes. It calls tell once at most, from any goroutine.
	Send(size int, tell func(Answer)) error
	// MinSize is the size of the smallest packet, MaxSize of the largest that the path does not fragment.
	MinSize() int
	MaxSize() int
	// RoundTrip is the round trip of the latest answer, 0 while there is none. Answers from before Run, and answers
	// that came too late, count.
	RoundTrip() time.Duration
}

// Traffic is the traffic to the destination.
type Traffic interface {
	// SentBytes returns the IP bytes that were sent so far.
	SentBytes() (uint64, error)
	// SetRate sets the highest rate from now on.
	SetRate(bytesPerSec uint64) error
	// Gate puts a gate in front of the traffic. The gate looks at this interval whether the next packet may leave.
	Gate(every time.Duration) (Gate, error)
}

const (
	// probing is the part of the rate that probes may cost. On a slow path it is probingSlow, because fewer probes do
	// not show the queue.
	probing, probingSlow = 0.02, 0.05
	soonest, latest      = 50 * time.Millisecond, 2 * time.Second
	usualSecond          = 300  // bytes: link headers count little beside it
	largestSecond        = 1000 // bytes
	smallestSecond       = 128
	// calmFor is the number of steps without a change after which probing is the bound of a slow rate, too.
	// The rate may change by the part calmBy meanwhile, and the queue may be calmQueue times its aim.
	calmFor, calmBy, calmQueue = 8, 0.125, 2
	// rarer is the factor by which the time to the next pair is longer while there is a window.
	rarer = 3
	// quiet is the interval of probes while next to nothing is sent. At the interval wakeful the runner looks whether
	// more is sent.
	quiet, wakeful = time.Second, 50 * time.Millisecond
	// overdue is the time beyond twice the round trip that the runner waits for an answer.
	overdue = 200 * time.Millisecond
	// overtaken is how long the runner waits for an answer after one to a later pair, because paths keep the order.
	overtaken = 50 * time.Millisecond
	look      = 10 * time.Millisecond
)

// Run probes the path and limits the traffic, until ctx ends or the traffic can no longer be measured or limited. It
// calls tell after each step, from this goroutine.
func Run(ctx context.Context, cfg Config, path Path, traffic Traffic, tell func(State)) error {
	cfg.RoundTrip = path.RoundTrip()
	r := runner{law: New(cfg), path: path, traffic: traffic, tell: tell, answers: make(chan answered, 64), out: make(chan came, 64), begun: time.Now()}
	defer r.release()
	return r.run(ctx)
}

type runner struct {
	law     *Law
	path    Path
	traffic Traffic
	tell    func(State)
	answers chan answered
	begun   time.Time

	waiting []*pair
	sent    uint64
	sentAt  time.Time
	set     uint64

	calm     int     // steps in a row in which nothing has changed
	calmRate float64 // rate in bytes/s when these steps began

	sleeps    bool   // next to nothing is sent
	slept     uint64 // bytes sent when sleeps was set
	wakeAt    time.Time
	held      *held     // nil = the rate alone bounds the traffic
	out       chan came // answered probes of the window
	holdAgain time.Duration
}

// pair is a pair of probe packets in flight.
type pair struct {
	at    time.Time
	bytes int
	got   [2]*Answer
	came  time.Time // when the first answer came
}

func (p *pair) complete() bool { return p.got[0] != nil && p.got[1] != nil }

type answered struct {
	of *pair
	i  int
	Answer
}

func (r *runner) run(ctx context.Context) (err error) {
	if r.sent, err = r.traffic.SentBytes(); err != nil {
		return fmt.Errorf("see what is sent: %w", err)
	}
	r.sentAt = time.Now()
	next := time.Now()
	ticker, every := time.NewTicker(look), look
	defer ticker.Stop()
	for {
		if now := r.looksEvery(); now != every {
			every = now
			ticker.Reset(every)
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-r.answers:
			r.answer(a)
		case <-r.moved():
			r.follow()
		case c := <-r.out:
			r.cameOut(c)
		case now := <-ticker.C:
			r.follow() // the gate may not have reported that packets left
			if woken := r.wakes(now); woken || !now.Before(next) {
				next = now.Add(r.probe(woken))
			}
		}
		if err := r.settle(); err != nil {
			return err
		}
		r.tend()
	}
}

// probe sends two packets, and returns when to send the next.
func (r *runner) probe(woken bool) time.Duration {
	r.sleep(!woken)
	first, second, wait := r.plan()
	p := &pair{at: time.Now(), bytes: second}
	for i, size := range []int{first, second} {
		err := r.path.Send(size, func(a Answer) {
			select {
			case r.answers <- answered{p, i, a}:
			default: // the probe counts as lost
			}
		})
		if err != nil { // without a route, or without memory, the probe counts as lost
			p.got[i] = &Answer{Lost: true}
		}
	}
	r.waiting = append(r.waiting, p)
	return wait
}

// plan returns the sizes of the next two packets, and the time until the pair after them.
func (r *runner) plan() (first, second int, wait time.Duration) {
	s := r.law.State()
	rate := s.Rate
	least := r.path.MinSize()
	most := min(largestSecond, r.path.MaxSize())
	wait, second = soonest, int(rate*probing*soonest.Seconds())-least
	if second < usualSecond {
		second = usualSecond
		wait = after(least+second, rate*probing)
	}
	if wait > 4*soonest {
		wait = 4 * soonest
		second = int(rate*probing*wait.Seconds()) - least
	}
	if second < smallestSecond {
		second = smallestSecond
		wait = min(after(least+second, rate*r.slowProbing()), latest)
	}
	if r.held != nil { // the window's own probes show the queue
		wait = min(rarer*wait, latest)
	}
	if r.sleeps {
		wait = max(wait, quiet)
	}
	return least, max(min(second, most), least), wait
}

// slowProbing returns the part of a slow rate that probes may cost now.
func (r *runner) slowProbing() float64 {
	if r.calm >= calmFor {
		return probing
	}
	return probingSlow
}

// noteCalm counts the steps in which the path did not change: no probe was lost, the queue was about as short as its
// aim, and the rate was about the same.
func (r *runner) noteCalm(p Probe, s State) {
	if s.Mode == ModeDelay && p.Lost == 0 && s.Queue <= calmQueue*s.Aim && math.Abs(s.Rate-r.calmRate) <= calmBy*r.calmRate {
		r.calm++
		return
	}
	r.calm, r.calmRate = 0, s.Rate
}

// looksEvery returns the interval of the runner's ticker, which is longer while next to nothing is sent.
func (r *runner) looksEvery() time.Duration {
	if r.sleeps && len(r.waiting) == 0 && r.held == nil {
		return wakeful
	}
	return look
}

// sleep notes whether the traffic uses next to nothing of its rate. It does so only where may is true.
func (r *runner) sleep(may bool) {
	s := r.law.State()
	if r.sleeps = may && s.Sent < s.Rate*probing; r.sleeps {
		r.slept, _ = r.traffic.SentBytes() // after an error here the next step fails
	}
}

// wakes reports whether traffic has begun since the last probe. The next regular probe would come too late for it:
// more than the path carries may be in flight by then.
func (r *runner) wakes(now time.Time) bool {
	if !r.sleeps || len(r.waiting) > 0 && now.Before(r.wakeAt) {
		return false
	}
	r.wakeAt = now.Add(wakeful)
	bytes, err := r.traffic.SentBytes()
	if err != nil {
		return false // the next step returns the error
	}
	return float64(bytes-min(r.slept, bytes)) > r.law.State().Rate*probing*quiet.Seconds()
}

func after(bytes int, bytesPerSec float64) time.Duration {
	return time.Duration(float64(bytes) / bytesPerSec * 1e9)
}

func (r *runner) answer(a answered) {
	if a.of.got[a.i] == nil {
		a.of.got[a.i] = &a.Answer
		if a.of.came.IsZero() && !a.Lost {
			a.of.came = time.Now()
		}
	}
}

// settle makes a step of the law for each pair that is complete or overdue, in their order.
func (r *runner) settle() error {
	s := r.law.State()
	patience := 2*max(s.Base+s.Queue, r.path.RoundTrip()) + overdue + after(10*packet, max(s.Rate, 1))
	for len(r.waiting) > 0 {
		p := r.waiting[0]
		if !p.complete() && time.Since(p.at) < patience && !slices.ContainsFunc(r.waiting[1:], func(later *pair) bool {
			return !later.came.IsZero() && time.Since(later.came) > overtaken
		}) {
			return nil
		}
		r.waiting = r.waiting[1:]
		if err := r.step(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) step(p *pair) error {
	now := time.Now()
	probe := Probe{At: now.Sub(r.begun), Bytes: p.bytes}
	for _, a := range p.got {
		switch {
		case a == nil || a.Lost:
			probe.Lost++
		case probe.RTT == 0:
			probe.RTT = max(a.RoundTrip, 1)
		}
	}
	if probe.Lost == 0 {
		probe.Gap = p.got[1].Received.Sub(p.got[0].Received)
	}
	bytes, err := r.traffic.SentBytes()
	if err != nil {
		return fmt.Errorf("see what is sent: %w", err)
	}
	over := max(now.Sub(r.sentAt), 5*time.Millisecond)
	rate := r.law.Step(probe, float64(bytes-min(r.sent, bytes))/over.Seconds())
	r.sent, r.sentAt = bytes, now
	state := r.law.State()
	r.noteCalm(probe, state)
	if r.held != nil {
		state.Window = r.held.window.want
	}
	if err := r.limit(r.ceiling(rate)); err != nil {
		return err
	}
	r.tell(state)
	return nil
}

// limit sets the rate, if it differs from the present one by more than 1/256.
func (r *runner) limit(bytesPerSec uint64) error {
	if diff := max(bytesPerSec, r.set) - min(bytesPerSec, r.set); diff <= r.set/256 {
		return nil
	}
	if err := r.traffic.SetRate(bytesPerSec); err != nil {
		return fmt.Errorf("limit what is sent: %w", err)
	}
	r.set = bytesPerSec
	return nil
}
