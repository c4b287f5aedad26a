package pacing

import (
	"errors"
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/netnamespace"
)

// The first chunks of a connection that have to wait go back to TCP, which tries again after 0.2 s, 0.4 s and so
// on. These steps are coarse. While a daemon runs it lets each deferred chunk try again at its departure time.
// Kernels before 6.1 refuse that (see nn_push in adopt.h). There, and without a daemon, TCP's coarse steps are the
// only retries.

const (
	// heldPause is the shortest time between two looks. heldWait is the longest while the next departure is within
	// a second, and heldLong is the longest otherwise.
	heldPause = 5 * time.Millisecond
	heldWait  = 50 * time.Millisecond
	heldLong  = time.Second
	// heldPatience is how long after its departure time a chunk is still pushed.
	heldPatience = time.Second
	// heldDuty bounds the part of one CPU that the looks take: 1 in 5.
	heldDuty = 4
)

// watchHeld begins with an event, and pushes deferred chunks until none is left. A raised limit brings departure times
// forward, so once in heldLong it visits all deferred chunks, not only those that are due.
func (k *Kernel) watchHeld() {
	defer close(k.heldDone)
	var visited time.Time // all of them
	for {
		select {
		case <-k.held:
		case <-k.stop:
			return
		}
		for {
			began := time.Now()
			changed := k.limitsChanged.Swap(false)
			all := changed || began.Sub(visited) >= heldLong
			if all {
				visited = began
			}
			next, some, err := k.pushHeld(all)
			if err != nil {
				k.opts.Logger.Debug("held connections are left to TCP's timers", "err", err)
				break
			}
			k.holding.Store(some)
			if !some {
				break
			}
			if changed { // next is of before the visit
				next = heldPause
			}
			least := max(heldPause, heldDuty*time.Since(began))
			pause := heldLong
			if next < heldLong {
				pause = min(next, heldWait)
			}
			select {
			case <-time.After(least):
			case <-k.stop:
				return
			}
			select {
			case <-time.After(pause - least): // returns at once if the difference is negative
			case <-k.held:
			case <-k.stop:
				return
			}
		}
	}
}

// changedLimits brings the departure times of deferred chunks forward if a limit was raised or lifted.
func (k *Kernel) changedLimits() {
	if !k.holding.Load() {
		return
	}
	k.limitsChanged.Store(true)
	select {
	case k.held <- struct{}{}:
	default: // watchHeld looks anyway
	}
}

// pushHeld lets the connections try again that have reached their departure time. If all is true it also looks for an
// earlier departure time of the others. It returns the time until the next departure, and reports whether some chunk is
// still deferred.
func (k *Kernel) pushHeld(all bool) (next time.Duration, some bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.obj.ListSockets()
	if err != nil {
		return 0, false, fmt.Errorf("list sockets: %w", err)
	}
	now := bpf.NowNS()
	next = heldLong
	due := map[uint32]bool{}
	for _, r := range list {
		wait, held := untilTurn(r, now)
		if !held {
			continue
		}
		some = true
		next = min(next, wait)
		if wait <= 0 || all {
			due[r.Netns] = true
		}
	}
	if len(due) == 0 {
		return next, some, nil
	}
	var errs []error
	for _, path := range netnamespace.Paths(due) {
		errs = append(errs, netnamespace.Within(path, k.obj.AdoptConnections))
	}
	return next, some, errors.Join(errs...)
}

// untilTurn returns how long a socket's deferred chunk still has to wait.
func untilTurn(r bpf.SocketRecord, now uint64) (wait time.Duration, held bool) {
	if r.State.DueNs == 0 || r.TcpState == tcpClose || r.TcpState == tcpTimeWait {
		return 0, false
	}
	wait = time.Duration(int64(r.State.DueNs - now))
	return wait, wait > -heldPatience
}
