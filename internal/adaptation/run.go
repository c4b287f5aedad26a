package adaptation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
	"github.com/netnice/netnice/internal/failure"
)

// ErrLifted is the reason for which following a path ends after somebody has lifted its limit.
var ErrLifted = errors.New("the limit was lifted")

// retryAfter is the pause before the daemon tries a path again that it could not follow.
const retryAfter = 5 * time.Second

// drainTime is the time in which a full queue in the path may become empty.
const drainTime = 500 * time.Millisecond

// writeEvery is how often the daemon writes a changed rate to its file, for the next daemon.
const writeEvery = 10 * time.Second

func (t *Table) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Keep follows all paths, and tries again where that has failed.
func (t *Table) Keep(ctx context.Context, tick <-chan time.Time) {
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, a := range t.list {
			t.closePath(a) // a path that was just opened
		}
	}()
	var failing failure.Lasting
	for {
		failing.Note(t.log, "what rules adapt is not all followed", t.followRules(ctx))
		t.pollAreas(ctx, &running)
		t.startAll(ctx, &running)
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-tick:
		}
	}
}

// startAll starts to follow the paths that are not followed yet.
func (t *Table) startAll(ctx context.Context, running *sync.WaitGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.list {
		if a.ended != nil || t.refuse != nil || ctx.Err() != nil || time.Now().Before(a.retry) {
			continue
		}
		its, end := context.WithCancel(ctx)
		a.end, a.ended = end, make(chan struct{})
		running.Go(func() { t.followPath(its, a) })
	}
}

func (t *Table) complain(a *entry, err error) {
	if text := err.Error(); text != a.fault {
		a.fault = text
		t.log.Warn("the path to a host is not followed; the rate stays", "host", a.Host, "address", a.Address.String(), "err", err)
	}
}

// halt stops following a path, and waits for the end of that; the limit stays. The caller holds t.mu, which halt releases
// while it waits. Another request may replace the entry in the list meanwhile.
func (t *Table) halt(a *entry) {
	for a.end != nil {
		end, ended := a.end, a.ended
		end()
		t.mu.Unlock()
		<-ended
		t.mu.Lock()
		if a.ended == ended { // else another request has halted it, and it was followed again
			a.end, a.ended = nil, nil
		}
	}
	t.closePath(a)
}

// holdQueue provides a queue for the traffic to a host before its first packet. Packets that are too far ahead of the
// clock are dropped while there is no queue. On a narrow path the first packets already are, before a queue is made.
// The caller holds t.mu.
func (t *Table) holdQueue(a *entry) {
	if a.TCP || a.unhold != nil {
		return
	}
	var err error
	if a.unhold, err = t.kernel.HoldQueue(a.Netns); err != nil {
		t.log.Warn("the first packets to a host may be lost: they have no queue yet", "address", a.Address.String(), "err", err)
	}
}

// closePath releases the path's queue and its prober. The caller holds t.mu.
func (t *Table) closePath(a *entry) {
	if a.unhold != nil {
		a.unhold()
		a.unhold = nil
	}
	if a.path == nil {
		return
	}
	if err := a.path.Close(); err != nil {
		t.log.Warn("close the socket of probes", "err", err)
	}
	a.path = nil
}

// followPath follows a path until ctx ends or a failure.
func (t *Table) followPath(ctx context.Context, a *entry) {
	defer close(a.ended)
	err := t.followed(ctx, a)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closePath(a)
	if ctx.Err() != nil {
		return // the function that has cancelled ctx does the rest
	}
	a.end, a.ended, a.retry = nil, nil, time.Now().Add(retryAfter)
	if errors.Is(err, ErrLifted) {
		t.log.Info("limit follows a path no more: it was lifted", "host", a.Host, "address", a.Address.String())
		delete(t.list, a.key())
		t.save()
		err = t.host.BoundBacklog(a.subject(), 0) // a limit on received traffic may remain on this subject
	}
	if err != nil {
		t.complain(a, err)
	}
}

func (t *Table) followed(ctx context.Context, a *entry) error {
	t.mu.Lock()
	path := a.path
	t.mu.Unlock()
	if path == nil {
		var err error
		if path, err = t.open(ctx, a); err != nil {
			return err
		}
		t.mu.Lock()
		a.path = path
		t.mu.Unlock()
	}
	to := &traffic{t: t, a: a}
	if err := to.find(); err != nil {
		return err
	}
	t.mu.Lock()
	t.holdQueue(a)
	first := a.first
	a.first = hostpath.Measured{} // the path may be a different one by the next time
	t.mu.Unlock()
	if first.Full {
		var err error
		if first, err = t.measureAgain(ctx, a, path, to); err != nil {
			return err
		}
	}
	cfg := adapt.Config{Start: float64(to.saved), Least: float64(a.Least), Most: float64(a.Most), Share: float64(a.SharePPM) / 1e6, Yields: a.TCP}
	if first.Sustained {
		cfg.Capacity = float64(first.BytesPerSec)
	}
	return adapt.Run(ctx, cfg, path, to, func(s adapt.State) {
		t.mu.Lock()
		a.state, a.fault = s, ""
		t.mu.Unlock()
	})
}

// measureAgain measures a path again whose queue was full, after a time in which little was sent.
func (t *Table) measureAgain(ctx context.Context, a *entry, path hostpath.Path, to *traffic) (m hostpath.Measured, err error) {
	select {
	case <-ctx.Done():
		return m, ctx.Err()
	case <-time.After(drainTime):
	}
	if m, err = path.Measure(ctx); err != nil {
		return m, err
	}
	rate := a.bounded(m.Start())
	if rate <= to.saved {
		return m, nil
	}
	t.log.Debug("a path was measured again that was full", "address", a.Address.String(), "start", rate)
	if err := to.SetRate(rate); err != nil {
		return m, err
	}
	to.saved = rate
	return m, nil
}

// traffic is the traffic to a host whose path is followed.
type traffic struct {
	t       *Table
	a       *entry
	node    uint32 // of the limit
	saved   uint64 // the rate in the file
	savedAt time.Time
}

// find finds the node of the limit.
func (o *traffic) find() error {
	node, rate, ok := o.t.host.LimitOn(o.a.subject())
	if !ok {
		return ErrLifted
	}
	o.node, o.saved, o.savedAt = node, rate, time.Now()
	return nil
}

// SentBytes implements adapt.Traffic.
func (o *traffic) SentBytes() (uint64, error) {
	bytes, err := o.t.kernel.SentBytes(o.node)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLifted, err)
	}
	return bytes, nil
}

// SetRate implements adapt.Traffic. It has the file written only each writeEvery: a slightly older rate is as good for
// the next daemon.
func (o *traffic) SetRate(bytesPerSec uint64) error {
	write := bytesPerSec != o.saved && time.Since(o.savedAt) >= writeEvery
	if err := o.t.host.SetRate(o.node, o.a.subject(), bytesPerSec, write); err != nil {
		return err
	}
	if write {
		o.saved, o.savedAt = bytesPerSec, time.Now()
	}
	return nil
}

// Gate implements adapt.Traffic.
func (o *traffic) Gate(every time.Duration) (adapt.Gate, error) {
	if o.a.TCP {
		return nil, adapt.ErrNoGate // TCP does not pass the gate
	}
	gate, err := o.t.kernel.Gate(o.node, every)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", adapt.ErrNoGate, err)
	}
	o.t.log.Debug("what is sent leaves by a window", "address", o.a.Address.String())
	return gate, nil
}

// Halt stops following all paths before their limits go, and lets none begin. Requests get the error refuse.
func (t *Table) Halt(refuse error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = refuse
	for _, a := range t.list {
		t.halt(a)
	}
}

// Resume lets paths be followed again, where the limits did not go after all.
func (t *Table) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = nil
	t.wakeUp()
}

// Forget forgets all paths, after their limits have gone.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.list)
	clear(t.areas)
	t.save()
}
