package daemon

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Datagrams need a queue from a program's first packet on. The kernel side makes a queue at the first flood, and until
// then it drops all packets above the limit. Therefore the daemon asks for the queue before a program begins. A process
// that limits itself (netnice run) gets one, and so does a process that a rule matches at its exec. A process that has
// datagram sockets when it gets a limit gets one, too. The daemon releases the queue of a program that uses no such
// sockets.

const (
	// queueWait bounds how long a process that limits itself waits for its queue.
	queueWait = 500 * time.Millisecond
	// queueTrialTicks is the number of ticks until the daemon checks whether a program uses datagrams at all.
	queueTrialTicks = 10
	// queueKeptTicks is the number of ticks for which a queue stays after the last limit that wants it.
	queueKeptTicks = 5
	// queueLooks bounds the failed checks of processes that have ended. After that number the daemon assumes that they
	// use no datagrams.
	queueLooks = 6
)

// readyQueues holds the queues that limits on processes keep, by network namespace.
type readyQueues struct {
	mu   sync.Mutex // taken before Daemon.mu where both are
	held map[uint32]*readyQueue
}

// readyQueue is the queue of one namespace.
type readyQueue struct {
	wants    map[uint32]*queueWant // the limits that want it, by node
	made     chan struct{}         // closed when the queue exists, or cannot be made
	release  func()                // nil: it does not exist yet
	wantedAt time.Time             // the last time at which a limit wanted it
}

// queueWant is a limit that wants a queue.
type queueWant struct {
	pid   int
	since time.Time
	sends bool // its processes have datagram sockets
	looks int  // number of checks that could not see that
	asks  int  // number of requests for the queue
}

func (q *readyQueue) isMade() bool { return isClosed(q.made) }

// isClosed reports whether a channel that carries no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// readyQueue starts to make a queue in the namespace where a process sends, for a limit on it. The channel is closed
// when the queue exists or cannot be made. It returns false if the process has ended. The caller must not hold
// Daemon.mu.
func (d *Daemon) readyQueue(id uint32, pid int, sends bool) (made <-chan struct{}, ok bool) {
	netns, err := netnamespace.Of(strconv.Itoa(pid))
	if err != nil {
		return nil, false
	}
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	q := d.queues.held[netns]
	if q == nil {
		q = &readyQueue{wants: map[uint32]*queueWant{}}
		if d.queues.held == nil {
			d.queues.held = map[uint32]*readyQueue{}
		}
		d.queues.held[netns] = q
	}
	q.wantedAt = time.Now()
	if w := q.wants[id]; w != nil { // the next process of a rule
		w.pid, w.sends = pid, w.sends || sends
		w.asks++
	} else {
		q.wants[id] = &queueWant{pid: pid, since: q.wantedAt, sends: sends}
	}
	if q.made == nil || q.isMade() { // the queue may have gone with the last limit
		q.made = make(chan struct{})
		go d.makeQueue(netns, q, q.made)
	}
	return q.made, true
}

// makeQueue makes a queue, or finds that it exists, and holds it.
func (d *Daemon) makeQueue(netns uint32, q *readyQueue, made chan<- struct{}) {
	defer close(made)
	release, err := d.kernel.HoldQueue(netns)
	if err != nil {
		d.log.Warn("the first datagrams of a program may be lost: they have no queue yet", "netns", netns, "err", err)
		return
	}
	d.queues.mu.Lock()
	former := q.release
	q.release = release
	d.queues.mu.Unlock()
	if former != nil {
		former()
	}
}

// readyFor prepares a queue where a limit was set on a process. A process that limits itself is about to start its
// program, and waits for the queue. Any other process gets a queue if it has datagram sockets.
func (d *Daemon) readyFor(ctx context.Context, by auth.Actor, s api.Subject, answer api.SetResponse) {
	if s.Kind == api.KindTo {
		_, s, _ = destination.Parse(s.ID) // the limit was set, so the subject can be parsed
	}
	id := answer.Node.ID
	pid, err := strconv.Atoi(s.ID)
	if s.Kind != api.KindPID || err != nil || !d.limitsSent(id) {
		return
	}
	if pid != by.PID {
		if answer.Changed {
			if sends, _ := d.sendsDatagrams(pid); sends {
				d.readyQueue(id, pid, true)
			}
		}
		return
	}
	made, ok := d.readyQueue(id, pid, false)
	if !ok {
		return
	}
	late := time.NewTimer(queueWait)
	defer late.Stop()
	select {
	case <-made:
	case <-late.C:
		d.log.Debug("a program begins before its queue is there", "pid", pid)
	case <-ctx.Done():
	}
}

// readyMatched prepares a queue for a process that rules have matched, if they limit its egress. No process waits for
// the queue, as the program runs already.
func (d *Daemon) readyMatched(pid int) {
	if id, ok := d.limitOnSent(pid); ok {
		d.readyQueue(id, pid, false)
	}
}

// limitOnSent finds a limit on the egress of a process: on a tree that it is in, or on a part of that tree's traffic.
func (d *Daemon) limitOnSent(pid int) (id uint32, ok bool) {
	trees := d.kernel.Trees(pid)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.draft()
	for _, n := range d.nodes.Sorted() {
		holds := slices.ContainsFunc(trees, func(tree uint32) bool {
			return tree == n.id || now.Node(tree) != nil && n.res.Kind == enforce.KindDestination && now.Node(n.id).Concerns(now.Node(tree))
		})
		if holds && limitsSent(d.specOf(n)) {
			return n.id, true
		}
	}
	return 0, false
}

// limitsSent reports whether a node limits egress.
func (d *Daemon) limitsSent(id uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes.Get(id)
	return n != nil && !d.isDown && limitsSent(d.specOf(n))
}

func limitsSent(spec enforce.NodeSpec) bool {
	for _, limits := range spec.Ceilings {
		if limits[enforce.Up].BytesPerSec != 0 || limits[enforce.Total].BytesPerSec != 0 {
			return true
		}
	}
	return false
}

// sendsDatagrams reports whether a process or a descendant has a datagram socket open. known is false where that cannot
// be seen, such as for descendants that a process has left behind.
func (d *Daemon) sendsDatagrams(pid int) (sends, known bool) {
	tree, err := cpu.Tree(pid)
	known = err == nil && len(tree) > 0
	for _, p := range tree {
		has, err := d.resolver.HasDatagramSocket(p)
		if has {
			return true, true
		}
		known = known && (err == nil || identity.IsNotFound(err))
	}
	return false, known
}

// queueLook is a check of a limit that wants a queue. It reads /proc, which takes a while, so it runs without the lock
// on the queues.
type queueLook struct {
	netns, id   uint32
	want        *queueWant
	asks        int // value of want.asks when the check began
	pid         int
	due         bool // the check also covers whether its processes use datagrams
	stands      bool // the limit exists
	sends, seen bool // its processes have datagram sockets; the check could see that
}

// releaseQueues releases the queues that no limit has wanted for a while.
func (d *Daemon) releaseQueues(now time.Time) {
	for _, release := range d.unwantedQueues(now, d.sendsDatagrams) {
		release() // without the lock, for the kernel side may be busy
	}
}

// unwantedQueues returns the functions that release the queues that no limit has wanted for a while. The function sends
// is sendsDatagrams or a test's; it is called without a lock.
func (d *Daemon) unwantedQueues(now time.Time, sends func(pid int) (sends, known bool)) (release []func()) {
	looks := d.queueLooks(now)
	for i := range looks {
		l := &looks[i]
		if l.stands = d.limitsSent(l.id); l.stands && l.due {
			l.sends, l.seen = sends(l.pid)
		}
	}
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	for _, l := range looks {
		q := d.queues.held[l.netns]
		if q == nil || q.wants[l.id] != l.want || l.want.asks != l.asks {
			continue // another request came meanwhile, so the next check counts
		}
		if !l.keeps(now) {
			delete(q.wants, l.id)
		}
	}
	for netns, q := range d.queues.held {
		switch {
		case !q.isMade():
		case q.release == nil: // it could not be made; the next program asks again
			delete(d.queues.held, netns)
		case len(q.wants) > 0:
			q.wantedAt = now
		case now.Sub(q.wantedAt) >= queueKeptTicks*d.opts.Tick:
			delete(d.queues.held, netns)
			release = append(release, q.release)
		}
	}
	return release
}

// queueLooks lists the limits to check.
func (d *Daemon) queueLooks(now time.Time) (list []queueLook) {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	for netns, q := range d.queues.held {
		if !q.isMade() {
			continue
		}
		for id, w := range q.wants {
			due := !w.sends && now.Sub(w.since) >= queueTrialTicks*d.opts.Tick
			list = append(list, queueLook{netns: netns, id: id, want: w, asks: w.asks, pid: w.pid, due: due})
		}
	}
	return list
}

// keeps notes the result of a check, and reports whether the limit still wants its queue. The limit has to exist, and
// after a while a check has to have found datagram sockets in its processes. The caller holds the lock on the queues.
func (l *queueLook) keeps(now time.Time) bool {
	w := l.want
	switch {
	case !l.stands:
		return false
	case !l.due:
		return true
	}
	if w.sends = l.sends; !l.seen {
		w.looks++
		w.since = now
	}
	return l.sends || !l.seen && w.looks < queueLooks
}
