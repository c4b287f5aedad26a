package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
	"github.com/netnice/netnice/internal/enforce"
)

// errLifted is the reason for which following a path ends after somebody has lifted its limit.
var errLifted = errors.New("the limit was lifted")

// adaptRetry is the pause before the daemon tries a path again that it could not follow.
const adaptRetry = 5 * time.Second

// adaptDrain is the time in which a full queue in the path may become empty.
const adaptDrain = 500 * time.Millisecond

// adaptSave is how often the daemon writes a changed rate to its file, for the next daemon.
const adaptSave = 10 * time.Second

func (d *Daemon) wakeAdapts() {
	select {
	case d.adapts.wake <- struct{}{}:
	default:
	}
}

// keepAdapts follows all paths, and tries again where that has failed.
func (d *Daemon) keepAdapts(ctx context.Context, tick <-chan time.Time) {
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		d.adapts.mu.Lock()
		defer d.adapts.mu.Unlock()
		for _, a := range d.adapts.list {
			d.closePath(a) // a path that was just opened
		}
	}()
	failing := ""
	for {
		d.complainOnce(&failing, "what rules adapt is not all followed", d.followRules(ctx))
		d.lookAtAreas(ctx, &running)
		d.startAdapts(ctx, &running)
		select {
		case <-ctx.Done():
			return
		case <-d.adapts.wake:
		case <-tick:
		}
	}
}

// startAdapts starts to follow the paths that are not followed yet.
func (d *Daemon) startAdapts(ctx context.Context, running *sync.WaitGroup) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	for _, a := range d.adapts.list {
		if a.ended != nil || d.adapts.isDown || ctx.Err() != nil || time.Now().Before(a.retry) {
			continue
		}
		its, end := context.WithCancel(ctx)
		a.end, a.ended = end, make(chan struct{})
		running.Go(func() { d.followPath(its, a) })
	}
}

func (d *Daemon) complainOfAdapt(a *adapted, err error) {
	if text := err.Error(); text != a.fault {
		a.fault = text
		d.log.Warn("the path to a host is not followed; the rate stays", "host", a.Host, "address", a.Address.String(), "err", err)
	}
}

// haltAdapt stops following a path, and waits for the end of that; the limit stays. The caller holds d.adapts.mu, which
// haltAdapt releases while it waits.
func (d *Daemon) haltAdapt(a *adapted) {
	if end, ended := a.end, a.ended; end != nil {
		end()
		d.adapts.mu.Unlock()
		<-ended
		d.adapts.mu.Lock()
	}
	a.end, a.ended = nil, nil
	d.closePath(a)
}

// holdQueue provides a queue for the traffic to a host before its first packet. Packets that are too far ahead of the
// clock are dropped while there is no queue. On a narrow path the first packets already are, before a queue is made.
// The caller holds d.adapts.mu.
func (d *Daemon) holdQueue(a *adapted) {
	if a.TCP || a.unhold != nil {
		return
	}
	var err error
	if a.unhold, err = d.kernel.HoldQueue(a.Netns); err != nil {
		d.log.Warn("the first packets to a host may be lost: they have no queue yet", "address", a.Address.String(), "err", err)
	}
}

// closePath releases the path's queue and its prober. The caller holds d.adapts.mu.
func (d *Daemon) closePath(a *adapted) {
	if a.unhold != nil {
		a.unhold()
		a.unhold = nil
	}
	if a.path == nil {
		return
	}
	if err := a.path.Close(); err != nil {
		d.log.Warn("close the socket of probes", "err", err)
	}
	a.path = nil
}

// followPath follows a path until ctx ends or a failure.
func (d *Daemon) followPath(ctx context.Context, a *adapted) {
	defer close(a.ended)
	err := d.followed(ctx, a)
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	d.closePath(a)
	if ctx.Err() != nil {
		return // the function that has cancelled ctx does the rest
	}
	a.end, a.ended, a.retry = nil, nil, time.Now().Add(adaptRetry)
	if errors.Is(err, errLifted) {
		d.log.Info("limit follows a path no more: it was lifted", "host", a.Host, "address", a.Address.String())
		delete(d.adapts.list, a.key())
		d.saveAdapts()
		err = d.boundBacklog(a.subject(), 0) // a limit on received traffic may remain on this subject
	}
	if err != nil {
		d.complainOfAdapt(a, err)
	}
}

func (d *Daemon) followed(ctx context.Context, a *adapted) error {
	d.adapts.mu.Lock()
	path := a.path
	d.adapts.mu.Unlock()
	if path == nil {
		var err error
		if path, err = d.openPath(ctx, a); err != nil {
			return err
		}
		d.adapts.mu.Lock()
		a.path = path
		d.adapts.mu.Unlock()
	}
	t := &adaptTraffic{d: d, a: a}
	if err := t.find(); err != nil {
		return err
	}
	d.adapts.mu.Lock()
	d.holdQueue(a)
	first := a.first
	a.first = hostpath.Measured{} // the path may be a different one by the next time
	d.adapts.mu.Unlock()
	if first.Full {
		var err error
		if first, err = d.measureAgain(ctx, a, path, t); err != nil {
			return err
		}
	}
	cfg := adapt.Config{Start: float64(t.saved), Least: float64(a.Least), Most: float64(a.Most), Share: float64(a.SharePPM) / 1e6, Yields: a.TCP}
	if first.Sustained {
		cfg.Capacity = float64(first.BytesPerSec)
	}
	return adapt.Run(ctx, cfg, path, t, func(s adapt.State) {
		d.adapts.mu.Lock()
		a.state, a.fault = s, ""
		d.adapts.mu.Unlock()
	})
}

// measureAgain measures a path again whose queue was full, after a time in which little was sent.
func (d *Daemon) measureAgain(ctx context.Context, a *adapted, path hostpath.Path, t *adaptTraffic) (m hostpath.Measured, err error) {
	select {
	case <-ctx.Done():
		return m, ctx.Err()
	case <-time.After(adaptDrain):
	}
	if m, err = path.Measure(ctx); err != nil {
		return m, err
	}
	rate := a.bounded(m.Start())
	if rate <= t.saved {
		return m, nil
	}
	d.log.Debug("a path was measured again that was full", "address", a.Address.String(), "start", rate)
	if err := t.SetRate(rate); err != nil {
		return m, err
	}
	t.saved = rate
	return m, nil
}

// adaptTraffic is the traffic to a host whose path is followed.
type adaptTraffic struct {
	d       *Daemon
	a       *adapted
	id      uint32
	saved   uint64 // the rate in the file
	savedAt time.Time
}

// find finds the node of the limit.
func (t *adaptTraffic) find() error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	n := t.d.limiting(t.a.subject())
	if n == nil {
		return errLifted
	}
	t.id, t.saved, t.savedAt = n.id, n.requested[enforce.OwnerAdmin].Up, time.Now()
	return nil
}

// SentBytes implements adapt.Traffic.
func (t *adaptTraffic) SentBytes() (uint64, error) {
	bytes, err := t.d.kernel.SentBytes(t.id)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errLifted, err)
	}
	return bytes, nil
}

// SetRate implements adapt.Traffic. It writes the file only each adaptSave: a slightly older rate is as good for the
// next daemon.
func (t *adaptTraffic) SetRate(bytesPerSec uint64) error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	n := t.d.nodes[t.id]
	if n == nil || n.res.Subject != t.a.subject() || n.requested[enforce.OwnerAdmin].Up == 0 {
		return errLifted
	}
	if t.d.isDown {
		return nil
	}
	n.requested[enforce.OwnerAdmin].Up = bytesPerSec
	if err := t.d.apply(n); err != nil {
		return err
	}
	if bytesPerSec == t.saved || time.Since(t.savedAt) < adaptSave {
		return nil
	}
	t.saved, t.savedAt = bytesPerSec, time.Now()
	t.d.writeChange(n.lasting(), n.change())
	return nil
}

// Gate implements adapt.Traffic.
func (t *adaptTraffic) Gate(every time.Duration) (adapt.Gate, error) {
	if t.a.TCP {
		return nil, adapt.ErrNoGate // TCP does not pass the gate
	}
	gate, err := t.d.kernel.Gate(t.id, every)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", adapt.ErrNoGate, err)
	}
	t.d.log.Debug("what is sent leaves by a window", "address", t.a.Address.String())
	return gate, nil
}

// haltAdapts stops following all paths before their limits go, and lets none begin.
func (d *Daemon) haltAdapts() {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	d.adapts.isDown = true
	for _, a := range d.adapts.list {
		d.haltAdapt(a)
	}
}

// admitAdapts lets paths be followed again, where the limits did not go after all.
func (d *Daemon) admitAdapts() {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	d.adapts.isDown = false
	d.wakeAdapts()
}

// forgetAdapts forgets all paths, after their limits have gone.
func (d *Daemon) forgetAdapts() {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	clear(d.adapts.list)
	clear(d.adapts.areas)
	d.saveAdapts()
}
