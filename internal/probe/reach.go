package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Attempt is a way that was tried to have answers, and why there were none.
type Attempt struct {
	Kind Kind
	Err  error
}

// UnreachableError says that a host answers to nothing that was tried.
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

// Hint is what to do.
func (e *UnreachableError) Hint() string {
	for _, a := range e.Attempts {
		var denied *deniedError
		if errors.As(a.Err, &denied) {
			return denied.Hint()
		}
	}
	return fmt.Sprintf("where ICMP is filtered, run there: netnice probe --reflect --listen [::]:%d", DefaultPort)
}

// Unwrap says that it is silence.
func (e *UnreachableError) Unwrap() error { return ErrSilent }

// Reach opens a prober of the first of the kinds that the host answers to. All are tried at the same
// time, for up to three seconds.
func Reach(ctx context.Context, cfg Config, kinds []Kind) (*Prober, error) {
	type outcome struct {
		prober *Prober
		err    error
	}
	outcomes := make([]outcome, len(kinds))
	var group sync.WaitGroup
	for i, kind := range kinds {
		group.Go(func() {
			one := cfg
			one.Kind = kind
			p, err := Open(one)
			if err == nil {
				if _, err = p.Ping(ctx); err != nil {
					_ = p.Close()
					p = nil
				}
			}
			outcomes[i] = outcome{p, err}
		})
	}
	group.Wait()
	var chosen *Prober
	var attempts []Attempt
	for i, o := range outcomes {
		switch {
		case o.err != nil:
			attempts = append(attempts, Attempt{kinds[i], o.err})
		case chosen == nil:
			chosen = o.prober
		default:
			_ = o.prober.Close()
		}
	}
	if chosen == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, &UnreachableError{cfg.To.String(), attempts}
	}
	return chosen, nil
}
