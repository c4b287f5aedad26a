package probe

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// MaxTrain is the largest number of packets in one train.
const MaxTrain = 8192

// Train is a train that was sent, and its outcome.
type Train struct {
	Size    int     // IP bytes of each packet
	Replies []Reply // in order of sending
}

// plan is a train to be sent: a number of first packets back to back, then packets at a rate.
type plan struct {
	first       int
	packets     int
	size        int     // IP bytes of each packet
	bytesPerSec float64 // rate of the later packets, 0 = back to back, too
	// fragments is the number of fragments of each packet, which have size bytes in all; 0 for unfragmented packets.
	fragments int
	// quiet is a time without an answer after all packets are sent. After it the missing packets count as
	// lost. 0 means the prober's timeout.
	quiet time.Duration
}

// Train sends n packets of size IP bytes at bytesPerSec, 0 for back to back. It returns when each
// packet is answered or lost. A thread of its own sends the train. The thread waits exactly, by polling the clock
// for the last 100 microseconds of each gap.
func (p *Prober) Train(ctx context.Context, n, size int, bytesPerSec float64) (Train, error) {
	return p.train(ctx, plan{packets: n, size: size, bytesPerSec: bytesPerSec})
}

// TrainUntilQuiet does the same as Train, with an earlier end. When all packets are sent, and no answer has come for
// the time quiet, the unanswered packets count as lost.
func (p *Prober) TrainUntilQuiet(ctx context.Context, n, size int, bytesPerSec float64, quiet time.Duration) (Train, error) {
	return p.train(ctx, plan{packets: n, size: size, bytesPerSec: bytesPerSec, quiet: quiet})
}

func (p *Prober) train(ctx context.Context, pl plan) (Train, error) {
	n := pl.first + pl.packets
	if n < 1 || n > MaxTrain {
		return Train{}, fmt.Errorf("train of %d packets: write 1 to %d", n, MaxTrain)
	}
	if pl.fragments > 0 {
		if err := p.socket.allowFragments(p.v6); err != nil {
			return Train{}, err
		}
	}
	if pl.bytesPerSec < 0 || pl.bytesPerSec > 0 && pl.bytesPerSec < 1 {
		return Train{}, fmt.Errorf("train at %g bytes/s: write at least 1, or 0 for back to back", pl.bytesPerSec)
	}
	type indexed struct {
		i     int
		reply Reply
	}
	done := make(chan indexed, n)
	t := Train{Size: pl.size, Replies: make([]Reply, n)}
	for i := range t.Replies {
		t.Replies[i] = Reply{Size: pl.size, Lost: true}
	}
	err := p.sendTrain(ctx, pl, func(i int) func(Reply) {
		return func(r Reply) { done <- indexed{i, r} }
	})
	if err != nil {
		return Train{}, err
	}
	quiet := pl.quiet
	if quiet <= 0 {
		quiet = 2 * p.cfg.Timeout // never reached: each packet is answered or lost before
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for range n {
		select {
		case r := <-done:
			t.Replies[r.i] = r.reply
			timer.Reset(quiet)
		case <-timer.C:
			return t, nil
		case <-ctx.Done():
			return Train{}, ctx.Err()
		case <-p.ended:
			return Train{}, fmt.Errorf("probe %s: the socket was closed", p.cfg.To)
		}
	}
	return t, nil
}

func (p *Prober) sendTrain(ctx context.Context, pl plan, tell func(i int) func(Reply)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	type prepared struct {
		flight *flight
		packet []byte
	}
	ready := make([]prepared, 0, pl.first+pl.packets)
	for i := range pl.first + pl.packets {
		f, packet, err := p.prepare(pl.size, pl.fragments, tell(i))
		if err != nil {
			for _, rest := range ready {
				p.forget(rest.flight)
			}
			return err
		}
		ready = append(ready, prepared{f, packet})
	}
	defer first()()
	begin := time.Now()
	for i, r := range ready {
		if i == pl.first {
			begin = time.Now()
		}
		if i > pl.first && pl.bytesPerSec > 0 {
			at := begin.Add(time.Duration(float64(i-pl.first) * float64(pl.size) / pl.bytesPerSec * 1e9))
			if err := waitUntil(ctx, at); err != nil {
				for _, rest := range ready[i:] {
					p.forget(rest.flight)
				}
				return err
			}
		}
		if err := p.launch(r.flight, r.packet); err != nil {
			for _, rest := range ready[i+1:] {
				p.forget(rest.flight)
			}
			return err
		}
	}
	return nil
}

func (p *Prober) sleep(ctx context.Context, d time.Duration) error {
	return waitUntil(ctx, time.Now().Add(d))
}

func (p *Prober) now() time.Time { return time.Now() }

// waitUntil sleeps, and polls the clock at the end, because a sleep ends some 60 us late.
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
