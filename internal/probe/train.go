package probe

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// MaxTrain is the most packets of one train.
const MaxTrain = 8192

// Train is a train that was sent, and what became of it.
type Train struct {
	Size    int     // IP bytes of each packet
	Replies []Reply // in order of sending
}

// Train sends n packets of size IP bytes at bytesPerSec, 0 for back to back, and returns when each
// is answered or lost. It is sent on a thread of its own that waits exactly, by looking at the clock
// for the last 100 microseconds of each gap.
func (p *Prober) Train(ctx context.Context, n, size int, bytesPerSec float64) (Train, error) {
	if n < 1 || n > MaxTrain {
		return Train{}, fmt.Errorf("train of %d packets: write 1 to %d", n, MaxTrain)
	}
	if bytesPerSec < 0 || bytesPerSec > 0 && bytesPerSec < 1 {
		return Train{}, fmt.Errorf("train at %g bytes/s: write at least 1, or 0 for back to back", bytesPerSec)
	}
	type indexed struct {
		i     int
		reply Reply
	}
	done := make(chan indexed, n)
	err := p.sendTrain(ctx, n, size, bytesPerSec, func(i int) func(Reply) {
		return func(r Reply) { done <- indexed{i, r} }
	})
	if err != nil {
		return Train{}, err
	}
	t := Train{Size: size, Replies: make([]Reply, n)}
	for range n {
		select {
		case r := <-done:
			t.Replies[r.i] = r.reply
		case <-ctx.Done():
			return Train{}, ctx.Err()
		case <-p.ended:
			return Train{}, fmt.Errorf("probe %s: the socket was closed", p.cfg.To)
		}
	}
	return t, nil
}

func (p *Prober) sendTrain(ctx context.Context, n, size int, bytesPerSec float64, tell func(i int) func(Reply)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := time.Now()
	for i := range n {
		if bytesPerSec > 0 {
			at := begin.Add(time.Duration(float64(i) * float64(size) / bytesPerSec * 1e9))
			if err := waitUntil(ctx, at); err != nil {
				return err
			}
		}
		if _, err := p.Send(size, tell(i)); err != nil {
			return err
		}
	}
	return nil
}

// waitUntil sleeps, and looks at the clock at the end: a sleep ends some 60 us late.
func waitUntil(ctx context.Context, at time.Time) error {
	const spin = 100 * time.Microsecond
	if d := time.Until(at) - spin; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	for time.Now().Before(at) { //nolint:revive // nothing to do but look at the clock
	}
	return ctx.Err()
}
