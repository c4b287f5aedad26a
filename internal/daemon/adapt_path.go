package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/probe"
)

// Path is a path that can be probed.
type Path interface {
	adapt.Path
	// Measure is about how fast packets come out of it, in bytes/s. If hardly any does, since its
	// queue is full, it is a part of what it carries in all, 0 if that cannot be told.
	Measure(ctx context.Context) (bytesPerSec uint64, full bool, err error)
	Kind() string      // of the probes
	SentBytes() uint64 // what they have cost
	Close() error
}

// PathConfig says where to.
type PathConfig struct {
	To        netip.Addr
	Port      uint16 // of a reflector, 0 = there is none
	Namespace string // path of the network namespace, "" = the daemon's
	// Prepare is given each socket before it sends.
	Prepare func(fd int) error
}

func (d *Daemon) openPath(ctx context.Context, a *adapted) (Path, error) {
	namespace, err := namespacePath(a.Netns)
	if err != nil {
		return nil, err
	}
	return d.opts.OpenPath(ctx, PathConfig{To: a.Address, Port: a.ReflectorPort, Namespace: namespace, Prepare: d.kernel.Probes})
}

const (
	// answerWithin is how long probes are waited for at all; the law has a shorter patience.
	answerWithin = 10 * time.Second
	// A train that measures: of what comes out, the second half counts.
	trainPackets, trainBytes, trainPatience = 20, 1000, 2500 * time.Millisecond
	trainQuiet                              = 1200 * time.Millisecond
	// Pairs that tell what a path carries whose queue is full, which is less than others have of
	// it: a quarter is what to begin with.
	pairsSent, pairBytes, pairsApart, pairsQuiet, pairsPart = 20, 500, 25 * time.Millisecond, 300 * time.Millisecond, 4
)

// openPath finds a kind of probes that the host answers.
func openPath(ctx context.Context, c PathConfig) (_ Path, err error) {
	kinds := []probe.Kind{probe.Timestamp, probe.Echo}
	switch {
	case c.Port != 0:
		kinds = []probe.Kind{probe.UDP}
	case c.To.Is6():
		kinds = []probe.Kind{probe.Echo}
	}
	p := &probedPath{cfg: probe.Config{To: c.To, Port: c.Port, Namespace: c.Namespace, Timeout: answerWithin, Prepare: c.Prepare}}
	if c.Namespace != "" {
		// Its path may be that of a process which ends, such as the command that asked for this.
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

// probedPath is a Path by a prober.
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

// Measure implements Path.
func (p *probedPath) Measure(ctx context.Context) (bytesPerSec uint64, full bool, err error) {
	cfg := p.cfg
	cfg.Timeout = trainPatience + 2*p.RoundTrip()
	other, err := probe.Open(ctx, cfg)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	size := max(min(trainBytes, p.MaxSize()), p.MinSize())
	train, err := other.TrainUntilQuiet(ctx, trainPackets, size, 0, trainQuiet+2*p.RoundTrip())
	if err != nil {
		return 0, false, err
	}
	var at []int64
	for _, r := range train.Replies {
		if !r.Lost {
			at = append(at, r.Arrived())
		}
	}
	slices.Sort(at)
	at = at[len(at)/2:]
	if len(at) < 3 || at[len(at)-1] == at[0] {
		size = max(min(pairBytes, p.MaxSize()), p.MinSize())
		rate, err := other.BusyPairs(ctx, pairsSent, size, pairsApart, pairsQuiet+2*p.RoundTrip())
		return uint64(rate / pairsPart), true, err
	}
	over := time.Duration(at[len(at)-1] - at[0])
	return uint64(float64((len(at)-1)*size) / over.Seconds()), false, nil
}
