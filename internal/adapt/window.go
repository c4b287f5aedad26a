package adapt

import (
	"errors"
	"math"
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
// How large it is says which part of the queue, and so of the path, is ours; it changes seldom, since
// each packet more finds the queue full.

const (
	// mostWindow is how many packets it is at most; of more it does not matter when each is sent.
	mostWindow = 16
	// fastest is the path beyond which a probe for each packet would be too late: bytes/s.
	fastest = 2.5e6
	// judged is over how many answers a window is judged, and at least how long.
	judged, judgedFor = 24, time.Second
	// tooLittle and tooMuch bound what it gives, in parts of the share.
	tooLittle, tooMuch = 0.7, 1.3
	// alone is the part of what is not the share that who is beside others does not get.
	alone = 0.7
	// mostOver is how much more than the share the rate may be: the window bounds it.
	mostOver = 1.35
	// probedBytes is how much leaves before a probe follows.
	probedBytes = 900
)

// window decides how much may have left, by what is known to have come out of the path.
type window struct {
	packets  int
	share    float64 // bytes/s that it should give
	path     float64 // bytes/s
	left     uint64
	answered uint64 // of left, what has come out or was given up
	probed   uint64 // of left, behind which a probe was sent
	under    []mark // probes on their way
	rtt      time.Duration

	// since it was judged
	since   time.Duration
	from    uint64
	answers int
	full    int // answers that came while the window was full
}

// mark is a probe that is on its way behind what had left.
type mark struct {
	left uint64
	at   time.Duration
}

// windowFor is how many packets of the path's queue, and of what is on its way, are the share.
func windowFor(share, rtt float64) int { return max(int(math.Round(share*rtt/packet)), 1) }

// newWindow begins with what has left by now; what is on its way counts as if it had come out.
func newWindow(packets int, share, path float64, left uint64, rtt, now time.Duration) *window {
	return &window{packets: packets, share: share, path: path, left: left, answered: left, probed: left, rtt: rtt, since: now, from: left}
}

// allowed is what may have left: with less than that another packet leaves.
func (w *window) allowed() uint64 {
	return w.answered + uint64((float64(w.packets)-0.5)*packet)
}

// leave notes what has left by now, and says whether a probe is to follow it.
func (w *window) leave(left uint64) bool {
	w.left = max(w.left, left)
	behind := w.left - w.probed
	return behind >= probedBytes || behind > 0 && w.left >= w.allowed()
}

// probe notes that one was sent behind what has left.
func (w *window) probe(now time.Duration) {
	w.probed = w.left
	w.under = append(w.under, mark{w.left, now})
}

// answer notes that a probe has come back.
func (w *window) answer(m mark, now time.Duration) {
	w.rtt += (now - m.at - w.rtt) / 8
	w.answers++
	if w.left >= w.allowed() {
		w.full++
	}
	w.out(m.left)
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
	if w.answers < judged/3 || over < judgedFor {
		return false
	}
	given := float64(w.answered-w.from) / over.Seconds()
	if given > w.share+alone*(w.path-w.share) {
		return true
	}
	if w.answers < judged {
		return false
	}
	switch {
	case given > tooMuch*w.share && w.packets > 1:
		w.packets--
	case given < tooLittle*w.share && 4*w.full > 3*w.answers && w.packets < mostWindow:
		w.packets++
	}
	w.since, w.from, w.answers, w.full = now, w.answered, 0, 0
	return false
}
