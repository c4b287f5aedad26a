// Package hostpath opens the path to a host for probes, and measures what it carries. It knows neither limits nor the
// control law that uses it.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/probe"
)

// Path is a path that can be probed.
type Path interface {
	adapt.Path
	// Measure returns what one short measurement finds out about the path.
	Measure(ctx context.Context) (Measured, error)
	Kind() string      // the kind of its probes
	SentBytes() uint64 // the cost of the probes
	Close() error
}

// Config names the destination of a path and the way to probe it.
type Config struct {
	To        netip.Addr
	Port      uint16 // of a reflector, 0 = none
	Namespace string // path of the network namespace, "" = the daemon's
	// Prepare receives each socket before it sends.
	Prepare func(fd int) error
}

// answerWithin is the longest wait for the answer to a probe. The control law gives up earlier.
const answerWithin = 10 * time.Second

// Open opens the path to a host by the network. It finds a kind of probe that the host answers.
func Open(ctx context.Context, c Config) (_ Path, err error) {
	kinds := []probe.Kind{probe.Timestamp, probe.Echo}
	switch {
	case c.Port != 0:
		kinds = []probe.Kind{probe.UDP}
	case c.To.Is6():
		kinds = []probe.Kind{probe.Echo}
	}
	p := &probedPath{cfg: probe.Config{To: c.To, Port: c.Port, Namespace: c.Namespace, Timeout: answerWithin, Prepare: c.Prepare}}
	if c.Namespace != "" {
		// The path of the namespace's file may be that of a process that ends, such as the command that has sent the
		// request.
		if p.namespace, err = os.Open(c.Namespace); err != nil {
			return nil, fmt.Errorf("open the network namespace: %w", err)
		}
		p.cfg.Namespace = fmt.Sprintf("/proc/self/fd/%d", p.namespace.Fd())
		defer func() {
			if err != nil {
				p.namespace.Close()
			}
		}()
	}
	p.Prober, err = probe.Reach(ctx, p.cfg, kinds)
	var silent *probe.UnreachableError
	switch {
	case errors.As(err, &silent):
		return nil, &api.Error{
			Code:    api.CodeNotFound,
			Message: fmt.Sprintf("%v: what the path carries cannot be told", silent),
			Hint:    "let it answer pings, or run there: netnice probe --reflect, and here: netnice adapt " + c.To.String() + " --reflector PORT; or set a limit by hand: netnice set --to " + c.To.String() + " --protocol udp --up 1mbit",
			Cause:   err,
		}
	case err != nil:
		return nil, fmt.Errorf("probe %s: %w", c.To, err)
	}
	p.cfg.Kind = p.Prober.Kind()
	return p, nil
}

// probedPath is a Path that a prober measures.
type probedPath struct {
	*probe.Prober
	cfg       probe.Config
	namespace *os.File // nil: the daemon's
}

// Close implements Path.
func (p *probedPath) Close() error {
	err := p.Prober.Close()
	if p.namespace != nil {
		err = errors.Join(err, p.namespace.Close())
	}
	return err
}

// Send implements adapt.Path.
func (p *probedPath) Send(size int, tell func(adapt.Answer)) error {
	_, err := p.Prober.Send(size, func(r probe.Reply) {
		tell(adapt.Answer{RoundTrip: r.RoundTrip(), Received: time.Unix(0, r.Arrived()), Lost: r.Lost})
	})
	return err
}

// MaxSize implements adapt.Path.
func (p *probedPath) MaxSize() int {
	n, err := p.Largest()
	if err != nil {
		return p.MinSize()
	}
	return n
}

// Kind implements Path.
func (p *probedPath) Kind() string { return string(p.cfg.Kind) }

// SentBytes implements Path.
func (p *probedPath) SentBytes() uint64 { return p.Counters().SentBytes }
