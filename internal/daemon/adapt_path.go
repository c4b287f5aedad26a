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
	// Measure returns what one short measurement finds out about the path.
	Measure(ctx context.Context) (Measured, error)
	Kind() string      // the kind of its probes
	SentBytes() uint64 // the cost of the probes
	Close() error
}

// Measured is the result of one short measurement of a path.
type Measured struct {
	// BytesPerSec is the approximate rate at which packets leave the path. If its queue is Full, hardly any packet
	// leaves. BytesPerSec is then a part of the path's whole capacity, 0 if that could not be measured.
	BytesPerSec uint64
	Full        bool
	// Sustained: the path let the first packets pass faster, so BytesPerSec is its lasting capacity.
	Sustained bool
}

// PathConfig names the destination of a path and the way to probe it.
type PathConfig struct {
	To        netip.Addr
	Port      uint16 // of a reflector, 0 = none
	Namespace string // path of the network namespace, "" = the daemon's
	// Prepare receives each socket before it sends.
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
	// answerWithin is the longest wait for the answer to a probe. The control law gives up earlier.
	answerWithin = 10 * time.Second
	// A train measures the rate. The second half of the answered packets counts.
	trainPackets, trainBytes, trainPatience = 20, 1000, 2500 * time.Millisecond
	trainQuiet                              = 1200 * time.Millisecond
	// A train that a token bucket let pass slows down when the bucket is empty. The train shows this if the median of
	// its last trainEnd gaps is bucketSeen times the average gap in the second half. If the rate at the end exceeds the
	// starting rate's bound, there may be a larger bucket: a train of longPackets finds out.
	trainEnd, bucketSeen, longPackets, longQuiet = 5, 2, 70, 500 * time.Millisecond
	// Pairs of packets measure the whole capacity of a path whose queue is full. Other traffic has most of that
	// capacity, so a quarter of it is the starting rate.
	pairsSent, pairBytes, pairsApart, pairsQuiet, pairsPart = 20, 500, 25 * time.Millisecond, 300 * time.Millisecond, 4
)

// openPath finds a kind of probe that the host answers.
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

// Measure implements Path.
func (p *probedPath) Measure(ctx context.Context) (m Measured, err error) {
	cfg := p.cfg
	cfg.Timeout = trainPatience + 2*p.RoundTrip()
	other, err := probe.Open(ctx, cfg)
	if err != nil {
		return Measured{}, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	size := max(min(trainBytes, p.MaxSize()), p.MinSize())
	rate, emptied, err := p.train(ctx, other, trainPackets, size, trainQuiet)
	if err != nil {
		return Measured{}, err
	}
	if rate == 0 {
		size = max(min(pairBytes, p.MaxSize()), p.MinSize())
		rate, err := other.BusyPairs(ctx, pairsSent, size, pairsApart, pairsQuiet+2*p.RoundTrip())
		return Measured{BytesPerSec: uint64(rate / pairsPart), Full: true}, err
	}
	if rate > adaptStartMost {
		again, isEmpty, err := p.train(ctx, other, longPackets, size, longQuiet)
		if err != nil {
			return Measured{}, err
		}
		if again > 0 {
			rate, emptied = min(rate, again), isEmpty
		}
	}
	return Measured{BytesPerSec: uint64(rate), Sustained: emptied}, nil
}

// train returns the rate at which one train leaves the path. emptied says that a token bucket let its first packets
// pass.
func (p *probedPath) train(ctx context.Context, by *probe.Prober, packets, size int, quiet time.Duration) (rate float64, emptied bool, err error) {
	train, err := by.TrainUntilQuiet(ctx, packets, size, 0, quiet+2*p.RoundTrip())
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
	rate, emptied = trainRate(at, size)
	return rate, emptied, nil
}

// trainRate returns the rate at which the second half of a train left the path, in bytes/s. If the end of the train was
// far slower, it returns the rate of that. It returns 0 if too few packets arrived. at has the time of each arrival, in
// ns.
func trainRate(at []int64, size int) (rate float64, emptied bool) {
	at = at[len(at)/2:]
	last := len(at) - 1
	if last < 2 || at[last] == at[0] {
		return 0, false
	}
	rate = float64(last*size) / time.Duration(at[last]-at[0]).Seconds()
	var gaps []int64
	for i := max(1, len(at)-trainEnd); i <= last; i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	slices.Sort(gaps)
	usual := gaps[len(gaps)/2]
	if time.Duration(usual).Seconds()*rate < bucketSeen*float64(size) {
		return rate, false
	}
	from := last - len(gaps)/2
	for from > 0 && at[from]-at[from-1] > usual/2 {
		from--
	}
	return float64((last-from)*size) / time.Duration(at[last]-at[from]).Seconds(), true
}
