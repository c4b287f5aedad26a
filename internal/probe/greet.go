package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
)

// ErrSilent says that the host did not answer.
var ErrSilent = errors.New("no answer")

const (
	// answerWithin is how long a prober waits for a first answer: the queue of a slow path may be
	// seconds long, and hosts behind it are not silent.
	answerWithin = 8 * time.Second
	// askEvery is the interval of requests meanwhile.
	askEvery = time.Second
	// refusals is how often the network may report that no host is there.
	refusals = 3
)

// patience returns the interval of the requests for a first answer, and the time in all.
func (p *Prober) patience() (every, within time.Duration) {
	return min(p.cfg.Timeout, askEvery), min(3*p.cfg.Timeout, answerWithin)
}

// greet asks the reflector for the cookie of our address.
func (p *Prober) greet(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = p.socket.file.SetReadDeadline(time.Now()) })()
	hello := reflectPacket{message: helloMessage, nonce: p.random.Uint64()}
	packet := make([]byte, reflectLength)
	hello.put(packet)
	every, within := p.patience()
	refused := 0
	var last error
	for end := time.Now().Add(within); time.Now().Before(end) && refused < refusals; {
		if err := p.socket.send(packet, p.cfg.Timeout); err != nil {
			return p.sendError(len(packet)+headers(UDP, p.v6, 0), err)
		}
		until := time.Now().Add(every)
		if last = p.challenged(ctx, hello.nonce, until); last == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !errors.Is(last, os.ErrDeadlineExceeded) {
			refused++
			time.Sleep(every / 10) // the reflector may be about to start
		}
	}
	to := netip.AddrPortFrom(p.cfg.To, p.cfg.Port)
	if errors.Is(last, os.ErrDeadlineExceeded) {
		return fmt.Errorf("reach a netnice that reflects at %s: %w", to, ErrSilent)
	}
	return fmt.Errorf("reach a netnice that reflects at %s: %w: %w", to, ErrSilent, last)
}

// challenged waits for the reflector's answer to any of the hellos.
func (p *Prober) challenged(ctx context.Context, nonce uint64, until time.Time) error {
	if err := p.socket.file.SetReadDeadline(until); err != nil {
		return err
	}
	buf, control := make([]byte, MaxSize), make([]byte, 256)
	for ctx.Err() == nil {
		n, _, err := p.socket.receive(buf, control)
		if err != nil {
			return err
		}
		r, err := parseReflect(buf[:n])
		if err == nil && r.message == challengeMessage && r.nonce == nonce {
			p.session = reflectPacket{message: probeMessage, cookie: r.cookie}
			return p.socket.file.SetReadDeadline(time.Time{})
		}
	}
	return ctx.Err()
}

// Ping sends small packets, one a second, until one is answered, for eight seconds at most, and
// returns that answer; ErrSilent if none comes. With a timeout of less than a second it sends one packet
// in each timeout, three at most.
func (p *Prober) Ping(ctx context.Context) (Reply, error) {
	every, within := p.patience()
	answers := make(chan Reply, 1)
	tell := func(r Reply) {
		if r.Lost {
			return
		}
		select {
		case answers <- r:
		default:
		}
	}
	end := time.NewTimer(within)
	defer end.Stop()
	again := time.NewTicker(every)
	defer again.Stop()
	for sent := 0; ; {
		if sent == 0 || time.Duration(sent)*every < within {
			if _, err := p.Send(max(p.MinSize(), 64), tell); err != nil {
				return Reply{}, err
			}
			sent++
		}
		select {
		case r := <-answers:
			return r, nil
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		case <-p.ended:
			return Reply{}, fmt.Errorf("probe %s: the socket was closed", p.cfg.To)
		case <-end.C:
			return Reply{}, p.silence()
		case <-again.C:
			if sent >= refusals && p.Err() != nil {
				return Reply{}, p.silence()
			}
		}
	}
}

// silence returns ErrSilent, together with the error that the network reported.
func (p *Prober) silence() error {
	if said := p.Err(); said != nil {
		return fmt.Errorf("%w: %w", ErrSilent, said)
	}
	return ErrSilent
}
