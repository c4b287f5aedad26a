package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
)

// ErrSilent says that nothing answered.
var ErrSilent = errors.New("no answer")

// greet asks the reflector for the cookie of our address, three times at most.
func (p *Prober) greet() error {
	const attempts = 3
	buf, control := make([]byte, MaxSize), make([]byte, 256)
	var last error
	for range attempts {
		hello := reflectPacket{message: helloMessage, nonce: p.random.Uint64()}
		packet := make([]byte, reflectLength)
		hello.put(packet)
		if err := p.socket.send(packet, p.cfg.Timeout); err != nil {
			return p.sendError(len(packet)+headers(UDP, p.v6, 0), err)
		}
		if err := p.socket.file.SetReadDeadline(time.Now().Add(min(p.cfg.Timeout, time.Second))); err != nil {
			return err
		}
		for {
			n, _, err := p.socket.receive(buf, control)
			if err != nil {
				last = err
				break
			}
			r, err := parseReflect(buf[:n])
			if err == nil && r.message == challengeMessage && r.nonce == hello.nonce {
				p.session = reflectPacket{message: probeMessage, cookie: r.cookie}
				return p.socket.file.SetReadDeadline(time.Time{})
			}
		}
		if !errors.Is(last, os.ErrDeadlineExceeded) {
			time.Sleep(min(p.cfg.Timeout, time.Second) / 10) // refused: it may be about to start
		}
	}
	to := netip.AddrPortFrom(p.cfg.To, p.cfg.Port)
	if errors.Is(last, os.ErrDeadlineExceeded) {
		return fmt.Errorf("reach a netnice that reflects at %s: %w", to, ErrSilent)
	}
	return fmt.Errorf("reach a netnice that reflects at %s: %w: %w", to, ErrSilent, last)
}

// Ping sends up to three small packets, one after the other, and returns the first answer;
// ErrSilent if none comes.
func (p *Prober) Ping(ctx context.Context) (Reply, error) {
	for range 3 {
		t, err := p.train(ctx, plan{packets: 1, size: max(p.MinSize(), 64), quiet: min(p.cfg.Timeout, time.Second)})
		if err != nil {
			return Reply{}, err
		}
		if !t.Replies[0].Lost {
			return t.Replies[0], nil
		}
	}
	if said := p.Err(); said != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrSilent, said)
	}
	return Reply{}, ErrSilent
}
