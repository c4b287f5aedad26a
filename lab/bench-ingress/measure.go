package ingress

import (
	"context"
	"errors"
	"strings"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bench"
	"github.com/netnice/netnice/lab/internal/police"
)

// limit is the limit of a cell.
type limit struct {
	dropped func() (uint64, error) // nil: the limiter has no counter, or drops nothing
	lift    func() error           // to be called after the end of the receiver
}

// measure runs one cell.
func measure(ctx context.Context, o bench.Options, c bench.Cell) (f bench.CellFigures, err error) {
	s, err := bench.Open(c, o.QuickAck)
	if err != nil {
		return f, err
	}
	l := limit{lift: func() error { return nil }}
	defer func() { err = errors.Join(err, s.Close(), l.lift()) }()
	if err := l.receive(ctx, o.Limiter(), c, s); err != nil {
		return f, err
	}
	if _, err := s.Send(bench.FirstPort, testbed.SenderConfig{Connections: c.Conns, Congestion: c.Congestion}); err != nil {
		return f, err
	}
	before, err := deviceDropped(s.Pair.B)
	if err != nil {
		return f, err
	}
	if f, err = s.Traffic(ctx, c); err != nil {
		return f, err
	}
	after, err := deviceDropped(s.Pair.B)
	if err != nil {
		return f, err
	}
	return f, l.count(&f, s, after-before)
}

// count records the drops of the limiter. It records the drops of the device if no other drop explains retransmits
// under a limit.
func (l *limit) count(f *bench.CellFigures, s *bench.Site, device uint64) (err error) {
	// Both counters start at their creation, as the senders' retransmits do.
	if f.Refused, err = refused(s.Pair.B); err != nil {
		return err
	}
	if l.dropped != nil {
		n, err := l.dropped()
		if err != nil {
			return err
		}
		f.Dropped = &n
	}
	if f.Rate > 0 && f.Retransmits > f.PathLost+f.PathDropped && dropped(f) == 0 {
		f.MachineDropped = device
	}
	return nil
}

// receive starts the cell's receiver and limits it.
func (l *limit) receive(ctx context.Context, netnice testbed.Command, c bench.Cell, s *bench.Site) error {
	var cfg testbed.ReceiverConfig
	switch c.Limiter {
	case bench.Trickle:
		t, err := startTrickle(s, c.Rate)
		if err == nil { // a nil *trickle would be no nil interface
			s.RX = t
		}
		return err
	case limiterPolice:
		p, err := police.Start(c.Rate)
		if err != nil {
			return err
		}
		l.dropped, l.lift = p.Dropped, p.Close
		cfg.Cgroup = p.Dir()
	case limiterIFB: // goes with the namespace
		if err := testbed.ShapeIngressHTB(s.Pair.B, c.Rate); err != nil {
			return err
		}
		l.dropped = func() (uint64, error) { return testbed.IngressDrops(s.Pair.B) }
	}
	if err := s.Receive(cfg); err != nil || c.Limiter != bench.Netnice {
		return err
	}
	return netnice.LimitDownPID(ctx, s.RX.PID(), c.Rate) // goes with the process
}

// refuses returns the reason why this netnice does not limit ingress, or "".
func refuses(ctx context.Context, o bench.Options) (why string, err error) {
	s, err := bench.Open(bench.Cell{}, false)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Receive(testbed.ReceiverConfig{}); err != nil {
		return "", err
	}
	problem := o.Limiter().LimitDownPID(ctx, s.RX.PID(), 1e9)
	if problem == nil {
		return "", ctx.Err()
	}
	return strings.Join(strings.Fields(problem.Error()), " "), ctx.Err()
}
