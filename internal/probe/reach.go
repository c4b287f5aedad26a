package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Attempt is a kind of probe packets that was tried, and the reason why no answer came.
type Attempt struct {
	Kind Kind
	Err  error
}

// UnreachableError says that a host answers to none of the kinds that were tried.
type UnreachableError struct {
	Host     string
	Attempts []Attempt
}

func (e *UnreachableError) Error() string {
	var tried []string
	for _, a := range e.Attempts {
		tried = append(tried, fmt.Sprintf("%s: %v", a.Kind, a.Err))
	}
	return fmt.Sprintf("%s answers to no probe packet (tried %s)", e.Host, strings.Join(tried, "; "))
}

// Hint returns the remedy.
func (e *UnreachableError) Hint() string {
	if denied := e.denied(); denied != nil {
		return denied.Hint()
	}
	return fmt.Sprintf("where ICMP is filtered, run there: netnice probe --reflect --listen '[::]:%d'", DefaultPort)
}

// Unwrap returns ErrSilent and, where the kernel refused a socket for every ICMP attempt, that refusal, which is
// ErrDenied.
func (e *UnreachableError) Unwrap() []error {
	if denied := e.denied(); denied != nil {
		return []error{ErrSilent, denied}
	}
	return []error{ErrSilent}
}

// denied returns the first refusal of a socket if the kernel refused every ICMP attempt, nil otherwise: a host that was
// silent to an ICMP packet is silent, also if this user may not send other kinds of packets.
func (e *UnreachableError) denied() *deniedError {
	var first *deniedError
	for _, a := range e.Attempts {
		if a.Kind == UDP {
			continue
		}
		var denied *deniedError
		if !errors.As(a.Err, &denied) {
			return nil
		}
		if first == nil {
			first = denied
		}
	}
	return first
}

// preferFor is a time beyond twice the answer's round trip. Once a later kind is answered, Reach waits so long for an
// earlier kind. The earlier kind's packet may have been lost, and is sent again after a second.
const preferFor = 1200 * time.Millisecond

// Reach opens a prober of the first of the kinds that the host answers to. All are tried at the same
// time, for up to eight seconds.
func Reach(ctx context.Context, cfg Config, kinds []Kind) (*Prober, error) {
	trying, enough := context.WithCancel(ctx)
	defer enough()
	type outcome struct {
		i      int
		prober *Prober
		err    error
	}
	ended := make(chan outcome, len(kinds))
	for i, kind := range kinds {
		one := cfg
		one.Kind = kind
		go func() {
			p, err := openAnswered(trying, one)
			ended <- outcome{i, p, err}
		}()
	}
	probers, attempts := make([]*Prober, len(kinds)), make([]Attempt, len(kinds))
	var best *Prober
	var patience <-chan time.Time
	for remaining := len(kinds); remaining > 0; {
		select {
		case o := <-ended:
			remaining--
			probers[o.i], attempts[o.i] = o.prober, Attempt{kinds[o.i], o.err}
			if o.prober != nil && patience == nil {
				patience = time.After(preferFor + 2*o.prober.RoundTrip())
			}
			if o.prober != nil && !slices.ContainsFunc(attempts[:o.i], func(a Attempt) bool { return a.Kind == "" }) {
				enough() // all kinds before this one have failed
			}
		case <-patience:
			enough()
		}
	}
	for _, p := range probers {
		switch {
		case p == nil:
		case best == nil:
			best = p
		default:
			_ = p.Close()
		}
	}
	if best != nil {
		return best, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, &UnreachableError{cfg.To.String(), attempts}
}

// openAnswered opens a prober whose packets are answered.
func openAnswered(ctx context.Context, cfg Config) (*Prober, error) {
	p, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := p.Ping(ctx); err != nil {
		_ = p.Close() // the caller cannot use the prober
		return nil, err
	}
	return p, nil
}
