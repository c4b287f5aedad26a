package adapt

import (
	"errors"
	"math"
	"slices"
	"time"
)

// Gate is what traffic waits at until it is allowed to leave.
type Gate interface {
	// Left is how many IP bytes have left since any fixed moment.
	Left() (uint64, error)
	// Allow lets packets leave until it is so many, and one beyond.
	Allow(bytes uint64) error
	// Moved delivers a value whenever something has left.
	Moved() <-chan struct{}
	// Close opens it for good.
	Close() error
}

// ErrNoGate says that there can be none now.
var ErrNoGate = errors.New("what is sent does not wait where it could be held")

// In a queue that has room for few packets, and that others fill who send one for each that is
// acknowledged, whoever sends by a rate comes too late: the place that his last packet left is taken.
// So one is sent for each of ours that has come out, which a probe right behind it tells: a window.
// How large it is says which part of the queue, and so of the path, is ours. One packet more than
// there are finds the queue full most times, so that is tried seldom, or when the queue is shorter.

const (
	// mostWindow is how many packets it is at most; of more it does not matter when each is sent.
	mostWindow = 16
	// fastest is the path beyond which a probe for each packet would be too late: bytes/s.
	fastest = 2.5e6
	// judged is over how many answers a window is judged, soonJudged whether somebody is beside it;
	// either takes judgedFor at least.
	judged, soonJudged, judgedFor = 24, 8, time.Second
	// tooLittle and tooMuch bound what it gives, in parts of the share.
	tooLittle, tooMuch = 0.85, 1.3
	// One in lostMost packets that is lost is too many, where it gives tooLossy of the share; then the
	// window is not enlarged for as many times as it is judged.
	lostMost, tooLossy, settledFor = 12, 0.6, 10
	// lostSoon of them, and a quarter, are so at once.
	lostSoon = 4
	// alone is the part of what is not the share that who is beside others does not get.
	alone = 0.7
	// mostOver is how much more than the share the rate may be: the window bounds it.
	mostOver = 1.35
	// probedBytes is how much leaves before a probe follows.
	probedBytes = 900
	// arrives is the part of its time on the path that two probes are apart at least if what was
	// sent between them has arrived.
	arrives = 0.5
	// shorter is by how many packets a queue is shorter if there is room in it.
	shorter = 0.7
	// sooner is how many times sooner a packet more is tried then.
	sooner = 4
	// roomFor is how many packets the share is at least where such room lets the window become larger
	// at once: of fewer one more is too large a part for what is beside.
	roomFor = 3
	// shortPause and longPause are how long it is from one packet too many to the next one more, in
	// round trips: who waits longer never gets what others, who try in each, have taken.
	shortPause, longPause = 1, 2
	// starving is the part of the share below which it is hungryPause.
	starving, hungryPause = 0.6, 0.5
)

// window decides how much may have left, by what is known to have come out of the path.
type window struct {
	want, have int     // packets
	share      float64 // bytes/s that it should give
	path       float64 // bytes/s
	left       uint64
	answered   uint64 // of left, what has come out or was given up
	probed     uint64 // of left, behind which a probe was sent
	under      []*mark
	before     *mark         // that was sent when the next packet was allowed
	rtt        time.Duration // usual
	newest     time.Duration // round trip
	high       time.Duration // of late the longest
	pause      float64       // from one packet more to the next, in round trips
	good       int           // packets that have arrived since one was lost, or pause became shorter
	moreAt     time.Duration // when there was one, or one too many

	// since it was judged
	since   time.Duration
	arrived uint64
	answers int
	full    int // answers that came while the window was full
	lost    int

	settled int  // times that it is judged before it may become larger again
	little  bool // it gave too little when it was judged last
}

// mark is a probe.
type mark struct {
	left   uint64        // what had left before it
	at     time.Duration // sent
	came   time.Duration // 0 = not yet
	bytes  uint64        // since before
	before *mark         // nil = what is between them is not known
}

// packetsOf is how many packets of the path's queue, and of what is on its way, are the share.
func packetsOf(share float64, rtt time.Duration) float64 { return share * rtt.Seconds() / packet }

// windowFor is the window nearest to that.
func windowFor(share float64, rtt time.Duration) int {
	return max(int(math.Round(packetsOf(share, rtt))), 1)
}

// newWindow begins with what has left by now; what is on its way counts as if it had come out.
func newWindow(packets int, share, path float64, left uint64, rtt, now time.Duration) *window {
	return &window{
		want: packets, have: 1, share: share, path: path, left: left, answered: left, probed: left,
		rtt: rtt, high: rtt, pause: 1 / float64(packets), moreAt: now, since: now,
	}
}

// allowed is what may have left: with less than that another packet leaves.
func (w *window) allowed() uint64 {
	return w.answered + uint64((float64(w.have)-0.5)*packet)
}

// isFull says that nothing may leave now.
func (w *window) isFull() bool { return w.left >= w.allowed() }

// leads is a probe to be sent before the packet that may leave next, nil if there is one or none may.
func (w *window) leads(now time.Duration) *mark {
	if w.isFull() || w.before != nil && w.before.left == w.left {
		return nil
	}
	w.before = &mark{left: w.left, at: now}
	return w.before
}

// follows is a probe to be sent behind what has left by now, nil if there is no need.
func (w *window) follows(left uint64, now time.Duration) *mark {
	last := w.left
	w.left = max(w.left, left)
	behind := w.left - w.probed
	if behind < probedBytes && (behind == 0 || !w.isFull()) {
		return nil
	}
	m := &mark{left: w.left, at: now}
	if w.before != nil && w.before.left == w.probed && last == w.probed {
		m.before, m.bytes = w.before, behind
	}
	w.probed = w.left
	w.under = append(w.under, m)
	return m
}

// answer notes that a probe has come back.
func (w *window) answer(m *mark, came time.Duration) {
	m.came = came
	rtt := came - m.at
	w.newest = rtt
	w.rtt += (rtt - w.rtt) / 8
	w.high = max(rtt, w.high-(w.high-rtt)/32)
	if m.bytes == 0 && m.before == nil && !slices.Contains(w.under, m) {
		return // it led
	}
	w.answers++
	if w.isFull() {
		w.full++
	}
	if b := m.before; b != nil && b.came != 0 && (came-b.came).Seconds() < arrives*float64(m.bytes)/w.path {
		w.lost++
		w.have = max(w.have-1, 1)
		w.pause = min(max(shortPause, 2*w.pause), longPause)
		if float64(w.have)*packet < starving*w.share*w.rtt.Seconds() {
			w.pause = hungryPause
		}
		w.moreAt, w.good = came, 0
	} else if m.left > w.answered {
		w.arrived += m.left - w.answered
		if w.good++; w.good >= 2*w.have && w.pause > shortPause {
			w.pause, w.good = w.pause/2, 0
		}
	}
	w.out(m.left)
}

// more lets one packet more be on its way, if it is time.
func (w *window) more(now time.Duration) {
	if !w.isFull() {
		return
	}
	pause, want := w.pause, w.want
	if (w.high - w.newest).Seconds() > shorter*packet/w.path {
		pause /= sooner
		if w.little && packetsOf(w.share, w.high) >= roomFor {
			want = max(want, min(w.want+1, windowFor(w.share, w.high), mostWindow))
		}
	}
	if w.have >= want || (now-w.moreAt).Seconds() < pause*w.rtt.Seconds() {
		return
	}
	w.have++
	w.want = max(w.want, w.have)
	w.moreAt = now
}

// out notes that all up to there has come out, or will not.
func (w *window) out(left uint64) {
	w.answered = max(w.answered, left)
	for len(w.under) > 0 && w.under[0].left <= left {
		w.under = w.under[1:]
	}
}

// patience is how long an answer is waited for.
func (w *window) patience() time.Duration { return 2*w.rtt + 3*overtaken }

// expire gives up probes that are overdue.
func (w *window) expire(now time.Duration) {
	for len(w.under) > 0 && now-w.under[0].at > w.patience() {
		w.out(w.under[0].left)
	}
}

// judge changes the window if it gives far less or more than the share, and says whether it is to
// end since nobody seems to be beside it.
func (w *window) judge(now time.Duration) (end bool) {
	over := now - w.since
	if w.answers < soonJudged || over < judgedFor {
		return false
	}
	given := float64(w.arrived) / over.Seconds()
	if given > w.share+alone*(w.path-w.share) {
		return true
	}
	if w.answers < judged && (w.lost < lostSoon || 4*w.lost < w.answers) {
		return false
	}
	w.settled = max(w.settled-1, 0)
	w.little = given < tooLittle*w.share
	switch {
	case given > tooMuch*w.share && w.want > 1:
		w.want--
	case w.lost*lostMost > w.answers && given > tooLossy*w.share && w.want > 1: // it does not pay
		w.want--
		w.settled = settledFor
	case w.little && w.settled == 0 && w.have == w.want && 4*w.full > 3*w.answers && w.want < mostWindow:
		w.want++
	}
	w.have = min(w.have, w.want)
	w.since, w.arrived, w.answers, w.full, w.lost = now, 0, 0, 0, 0
	return false
}
