package egress

import (
	"context"
	"errors"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bench"
)

// benchUID is a user without any other process, for limits of users.
const benchUID = 64209

// measure runs one cell.
func measure(ctx context.Context, o bench.Options, c bench.Cell) (f bench.CellFigures, err error) {
	s, err := bench.Open(c, o.QuickAck)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ports := []testbed.Port{{Number: bench.FirstPort}, {Number: bench.SecondPort}}
	if err := s.Receive(testbed.ReceiverConfig{Ports: ports}); err != nil {
		return f, err
	}
	if c.Limiter == bench.Trickle {
		t, err := startTrickle(s, c.Rate)
		if err != nil {
			return f, err
		}
		s.TX = append(s.TX, t)
		return s.Traffic(ctx, c)
	}
	cfg := testbed.SenderConfig{Connections: c.Conns, Congestion: c.Congestion}
	if c.Shares {
		cfg.UID = benchUID
	}
	first, err := s.Send(bench.FirstPort, cfg)
	if err != nil {
		return f, err
	}
	if c.Shares {
		cfg.Connections = 1
		if _, err := s.Send(bench.SecondPort, cfg); err != nil {
			return f, err
		}
	}
	lift, err := limit(ctx, o.Limiter(), c, s, first.PID())
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, lift()) }()
	return s.Traffic(ctx, c)
}

// limit puts the cell's limit in place and returns a function that lifts it.
func limit(ctx context.Context, netnice testbed.Command, c bench.Cell, s *bench.Site, pid int) (lift func() error, err error) {
	nothing := func() error { return nil }
	after := context.WithoutCancel(ctx)
	switch {
	case c.Limiter == limiterHTB:
		return nothing, testbed.ShapeHTB(s.Pair.A, c.Rate) // goes with the namespace
	case c.Limiter == limiterTBF:
		return nothing, testbed.ShapeTBF(s.Pair.A, c.Rate)
	case c.Limiter == bench.Netnice && c.Shares:
		err = netnice.LimitUser(ctx, benchUID, c.Rate)
		return func() error { return netnice.LiftUser(after, benchUID) }, err
	case c.Limiter == bench.Netnice:
		err = netnice.LimitPID(ctx, pid, c.Rate)
		return nothing, err // goes with the process
	}
	return nothing, nil
}
