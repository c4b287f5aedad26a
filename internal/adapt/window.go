package adapt

import (
	"errors"
	"math"
	"slices"
	"time"
)

// Gate holds traffic back until the window allows it to leave.
type Gate interface {
	// Left returns how many IP bytes have left since any fixed moment.
	Left() (uint64, error)
	// Allow lets packets leave until Left reaches bytes; the last of them may go beyond.
	Allow(bytes uint64) error
	// Moved delivers a value whenever a packet has left.
	Moved() <-chan struct{}
	// Close opens the gate for good.
	Close() error
}

// ErrNoGate says that there can be no gate now.
var ErrNoGate = errors.New("what is sent does not wait where it could be held")

// A short queue has room for few packets, and other senders fill it: each sends a packet for each acknowledged one.
// A sender that goes by a rate comes too late, because others have taken the slot that its last packet freed.
// Therefore this sender has a window: it sends a packet for each of its own that has left the path. A probe right
// behind each packet reports that. The size of the window decides which part of the queue, and so of the path, this
// sender has. An additional packet finds the queue full most times, so the window tries one seldom, or when the
// queue is shorter.

const (
	// mostWindow is the largest window in packets. With more packets the time of each does not matter.
	mostWindow = 16
	// fastest is the fastest path with a window, in bytes/s. On a faster one a probe for each packet comes too late.
	fastest = 2.5e6
	// judged is the number of answers over which a window is judged. After soonJudged answers it is judged whether
	// there is competing traffic. Both take at least judgedFor.
	judged, soonJudged, judgedFor = 24, 8, time.Second
	// tooLittle and tooMuch bound the rate that the window gives, in parts of the share.
	tooLittle, tooMuch = 0.85, 1.3
	// One lost packet in lostMost is too many, where the window gives at least tooLossy of the share. The window then
	// does not grow for the next settledFor judgements.
	lostMost, tooLossy, settledFor = 12, 0.6, 10
	// lostSoon lost packets, if they are a quarter of all, are too many at once.
	lostSoon = 4
	// alone is a part of the capacity beyond the share. A sender with competitors does not get that much more.
	alone = 0.7
	// mostOver is the ceiling of the rate as a multiple of the law's rate, while the window bounds the traffic.
	mostOver = 1.35
	// probedBytes is the number of bytes that leave before a probe follows.
	probedBytes = 900
	// arrives is the least distance in time between two probes if the bytes between them have arrived. The
	// distance is in parts of the time that these bytes take on the path.
	arrives = 0.5
	// shorter is the number of packets by which the queue is shorter than its longest if there is room in it.
	shorter = 0.7
	// sooner is the factor by which the window tries an additional packet sooner if there is room.
	sooner = 4
	// roomFor is the least share in packets with which such room lets the window grow at once. Of a smaller share
	// one more packet is too large a part for the competing traffic.
	roomFor = 3
	// shortPause and longPause bound the time from one packet too many to the next attempt, in round trips.
	// Competing senders try in each round trip, so a sender that waits longer never regains its part.
	shortPause, longPause = 1, 2
	// starving is the part of the share below which the pause is hungryPause.
	starving, hungryPause = 0.6, 0.5
)

// window decides how many bytes may have left, by the bytes that are known to have left the path.
type window struct {
	want, have int     // target and present size, packets
	share      float64 // rate that the window should give, bytes/s
	path       float64 // capacity, bytes/s
	left       uint64  // bytes that have left through the gate
	answered   uint64  // position in left up to which all bytes have arrived or are given up
	probed     uint64  // position in left behind which the last probe was sent
	under      []*mark
	before     *mark         // probe that was sent when the next packet was allowed
	rtt        time.Duration // usual round trip
	newest     time.Duration // newest round trip
	high       time.Duration // longest recent round trip
	pause      float64       // round trips from one additional packet to the next
	good       int           // packets that have arrived since one was lost, or pause became shorter
	moreAt     time.Duration // when the last additional packet was allowed, or one was lost

	// Counts since the last judgement:
	since   time.Duration
	arrived uint64
	answers int
	full    int // answers that came while the window was full
	lost    int

	settled int  // judgements before the window may grow again
	little  bool // the window gave too little at the last judgement
}

// mark is a probe of a window.
type mark struct {
	left   uint64        // bytes that had left before the probe
	at     time.Duration // when the probe was sent
	came   time.Duration // when the answer came; 0 = not yet
	bytes  uint64        // bytes between this probe and before
	before *mark         // nil = the bytes in between are not known
}

// packetsOf returns the share of the path's queue and of the packets in flight, in packets.
func packetsOf(share float64, rtt time.Duration) float64 { return share * rtt.Seconds() / packet }

// windowFor returns the window nearest to packetsOf, at least one packet.
func windowFor(share float64, rtt time.Duration) int {
	return max(int(math.Round(packetsOf(share, rtt))), 1)
}

// newWindow begins at the bytes that have left so far. Bytes in flight count as if they had arrived.
func newWindow(packets int, share, path float64, left uint64, rtt, now time.Duration) *window {
	return &window{
		want: packets, have: 1, share: share, path: path, left: left, answered: left, probed: left,
		rtt: rtt, high: rtt, pause: 1 / float64(packets), moreAt: now, since: now,
	}
}

// allowed returns the number of bytes that may have left. The gate lets another packet leave while fewer have.
func (w *window) allowed() uint64 {
	return w.answered + uint64((float64(w.have)-0.5)*packet)
}

// isFull reports whether no packet may leave now.
func (w *window) isFull() bool { return w.left >= w.allowed() }

// leads returns a probe to send ahead of the next packet. It returns nil if there is such a probe already, or if no
// packet may leave.
func (w *window) leads(now time.Duration) *mark {
	if w.isFull() || w.before != nil && w.before.left == w.left {
		return nil
	}
	w.before = &mark{left: w.left, at: now}
	return w.before
}

// follows returns a probe to send behind the bytes that have left so far, nil if none is needed.
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
		return // a probe of leads
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

// more allows one more packet in flight, if it is time.
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

// out notes that all bytes up to left have arrived, or never will.
func (w *window) out(left uint64) {
	w.answered = max(w.answered, left)
	for len(w.under) > 0 && w.under[0].left <= left {
		w.under = w.under[1:]
	}
}

// patience returns how long the window waits for an answer.
func (w *window) patience() time.Duration { return 2*w.rtt + 3*overtaken }

// expire gives up probes that are overdue.
func (w *window) expire(now time.Duration) {
	for len(w.under) > 0 && now-w.under[0].at > w.patience() {
		w.out(w.under[0].left)
	}
}

// judge changes the window if it gives far less or far more than the share. It reports whether the window is to end
// because there seems to be no competing traffic.
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
	case w.lost*lostMost > w.answers && given > tooLossy*w.share && w.want > 1: // its losses outweigh its gain
		w.want--
		w.settled = settledFor
	case w.little && w.settled == 0 && w.have == w.want && 4*w.full > 3*w.answers && w.want < mostWindow:
		w.want++
	}
	w.have = min(w.have, w.want)
	w.since, w.arrived, w.answers, w.full, w.lost = now, 0, 0, 0, 0
	return false
}
