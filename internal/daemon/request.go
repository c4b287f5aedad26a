package daemon

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

const (
	// requestWorkers is the number of requests about limits that are answered at a time. Requests of one process are
	// answered in the order of their arrival.
	requestWorkers = 8
	// requestsWaiting is the number of requests that may wait for each worker. Further ones are refused.
	requestsWaiting = 64
)

// queuedRequest is a request that a worker answers.
type queuedRequest struct {
	enforce.Request
	leave func() // called by the worker when it has the answer
}

// requestQueues are the queues of requests, each with a worker. The last one is for requests about the processors: all
// of these take one lock, which is held while systemd makes a scope, and no other request waits for that.
type requestQueues [requestWorkers + 1]chan queuedRequest

// of returns the queue for a request.
func (q *requestQueues) of(r enforce.Request) chan<- queuedRequest {
	if r.OfPower && r.Reserve == nil {
		return q[requestWorkers]
	}
	return q[r.PID%requestWorkers]
}

// enqueueRequest gives a request to its worker. It returns false if the user has too many requests about the
// processors, or if the queue is full. The bound for each user is not for administrators.
func (d *Daemon) enqueueRequest(waiting *requestQueues, powers *auth.InFlight, r enforce.Request) bool {
	leave := func() {}
	if r.OfPower && r.Reserve == nil && !r.Admin {
		if leave, _, _ = powers.Enter(d.countsAs(r.UID), auth.MaxPowerAsksPerUser, math.MaxInt); leave == nil {
			return false
		}
	}
	select {
	case waiting.of(r) <- queuedRequest{r, leave}:
		return true
	default: // the reader of requests waits for no answer
		leave()
		return false
	}
}

// keepRequests answers programs that ask by a socket option (include/netnice.h). The same rights hold as for requests
// by the API.
func (d *Daemon) keepRequests(ctx context.Context) {
	var waiting requestQueues
	// All users share one queue for requests about the processors, which is slow while systemd is, and no user may fill
	// it.
	var powers auth.InFlight
	var workers sync.WaitGroup
	for i := range waiting {
		waiting[i] = make(chan queuedRequest, requestsWaiting)
		workers.Go(func() { d.answerRequests(ctx, waiting[i]) })
	}
	defer workers.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.kernel.Requests():
			if !d.enqueueRequest(&waiting, &powers, r) {
				d.tellProgram(r, enforce.Answer{Errno: uint32(unix.EAGAIN)})
			}
		}
	}
}

func (d *Daemon) answerRequests(ctx context.Context, list <-chan queuedRequest) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-list:
			answer := d.answer(ctx, r.Request)
			r.leave() // first: a program that has its answer may ask again
			d.tellProgram(r.Request, answer)
		}
	}
}

// tellProgram puts the answer where the program finds it.
func (d *Daemon) tellProgram(r enforce.Request, a enforce.Answer) {
	if err := d.kernel.Answer(r.Number, a); err != nil {
		d.log.Warn("a program gets no answer", "pid", r.PID, "err", err)
	}
}

func (d *Daemon) answer(ctx context.Context, r enforce.Request) (a enforce.Answer) {
	d.inflight.Add(1)
	defer d.inflight.Add(-1)
	var err error
	switch {
	case !r.At.IsZero() && time.Since(r.At) > enforce.RequestPatience:
		err = unix.ETIMEDOUT // it waited here; its program has given up, and takes it for refused
	case r.Reserve != nil:
		a, err = d.reserveSocket(r)
	case r.OfPower:
		a.BytesPerSec, err = d.requestPower(ctx, r)
	default:
		a.BytesPerSec, err = d.request(ctx, r)
	}
	a.Errno = errnoOf(err)
	return a
}

// request carries out the request of a program, and returns the limit that holds then.
func (d *Daemon) request(ctx context.Context, r enforce.Request) (holds uint64, err error) {
	subject, err := d.asked(r)
	if err != nil {
		return 0, err
	}
	if !r.Ask {
		var w api.Wish
		switch r.Direction {
		case enforce.Up:
			w.UpBytesPerSec = &r.BytesPerSec
		case enforce.Down:
			w.DownBytesPerSec = &r.BytesPerSec
		default:
			w.TotalBytesPerSec = &r.BytesPerSec
		}
		by := auth.Actor{UID: r.UID, GID: r.GID, PID: r.PID, Admin: r.Admin}
		if _, err := d.carry(ctx, d.setRequest(by, api.SetRequest{Subject: subject, Wish: w})); err != nil {
			return 0, err
		}
	}
	res, err := d.resolver.Resolve(ctx, subject)
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes.Find(res)
	if n == nil {
		return 0, nil
	}
	for _, owner := range n.Holding() {
		if rate := owner.Rates()[r.Direction]; rate != 0 && (holds == 0 || rate < holds) {
			holds = rate
		}
	}
	return holds, nil
}

// requestPower is request for CPU shares of a process.
func (d *Daemon) requestPower(ctx context.Context, r enforce.Request) (holds uint64, err error) {
	subject, err := d.asked(r)
	if err != nil {
		return 0, err
	}
	res, err := d.resolver.Resolve(ctx, subject)
	if err != nil {
		return 0, err
	}
	pid := int(res.Key)
	if !r.Ask {
		by := auth.Actor{UID: r.UID, GID: r.GID, PID: r.PID, Admin: r.Admin}
		if _, err := d.SetPower(ctx, by, api.PowerRequest{PID: pid, Power: r.Power}); err != nil {
			return 0, err
		}
	}
	return uint64(d.cpuShares.PowerOf(pid, res.StartBoottimeNS) + enforce.Power0), nil
}

// asked returns the subject that a program means.
func (d *Daemon) asked(r enforce.Request) (api.Subject, error) {
	if r.Kind == enforce.KindUser {
		return identity.User(cmp.Or(r.Who, r.UID)).Subject, nil
	}
	if r.Who == 0 || int(r.Who) == r.PID {
		return identity.PIDSubject(r.PID), nil
	}
	// The program's process numbers are those of processes here only if it is not in a container.
	same, err := samePIDs(r.PID, d.pid)
	if err == nil && !same {
		err = unix.ESRCH
	}
	return identity.PIDSubject(int(r.Who)), err
}

func samePIDs(a, b int) (bool, error) {
	var of [2]string
	for i, pid := range [2]int{a, b} {
		var err error
		if of[i], err = os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/pid")); err != nil {
			return false, unix.ESRCH // it has ended
		}
	}
	return of[0] == of[1], nil
}

// errnoOf returns the error number by which a program learns of an error.
func errnoOf(err error) uint32 {
	var number unix.Errno
	var answer *api.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &answer):
	case errors.As(err, &number):
		return uint32(number)
	default:
		return uint32(unix.EIO)
	}
	switch answer.Code {
	case api.CodeDenied:
		return uint32(unix.EPERM)
	case api.CodeNotFound:
		return uint32(unix.ESRCH)
	case api.CodeBadRequest:
		return uint32(unix.EINVAL)
	case api.CodeConflict:
		return uint32(unix.EBUSY)
	case api.CodeNotSupported:
		return uint32(unix.EOPNOTSUPP)
	}
	return uint32(unix.EIO)
}
