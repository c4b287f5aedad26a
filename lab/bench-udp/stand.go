package udp

import (
	"context"
	"errors"
	"strconv"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/bench"
)

// stand is the state that all cells share. Non-TCP egress waits only in the daemon's namespace, so the daemon is in
// A for the whole run. The limited programs are always there.
type stand struct {
	pair   *testbed.Pair
	daemon *bed.Daemon
	// free holds the rates without a limit, IP bytes/s, by kind of datagrams.
	free map[bench.Datagrams]float64
	way  bench.Way // direction of the last printed line
}

func (s *stand) open(ctx context.Context, o bench.Options, cells []bench.Cell) (end func() error, err error) {
	s.free = make(map[bench.Datagrams]float64)
	if s.pair, err = testbed.NewPairInOrder(); err != nil {
		return nil, err
	}
	end = s.pair.Close
	if !bench.Uses(cells, bench.Netnice) {
		return end, nil
	}
	if s.daemon, err = bed.NewDaemon(o.Netnice); err != nil {
		return nil, errors.Join(err, end())
	}
	end = func() error { return errors.Join(s.daemon.Close(), s.pair.Close()) }
	if err := s.daemon.UpIn(ctx, s.pair.A); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// benchUID is a user without any other process.
const benchUID = 64209

// limit puts the cell's limit in place and returns a function that lifts it. The limit is on a process. Beside TCP
// it is on the user whose two programs send.
func (s *stand) limit(ctx context.Context, c bench.Cell, pid int) (lift func() error, err error) {
	after := context.WithoutCancel(ctx)
	lifts := func(kind string, id int) func() error {
		return func() error {
			_, err := s.daemon.Netnice(after, "unset", kind, strconv.Itoa(id))
			return err
		}
	}
	switch {
	case c.Limiter == limiterHTB && c.Way == bench.Down:
		return func() error { return testbed.UnshapeIngress(s.pair.A) }, testbed.ShapeIngressHTB(s.pair.A, c.Rate)
	case c.Limiter == limiterHTB:
		return func() error { return testbed.Unshape(s.pair.A) }, testbed.ShapeHTB(s.pair.A, c.Rate)
	case c.Limiter == limiterTBF:
		return func() error { return testbed.Unshape(s.pair.A) }, testbed.ShapeTBF(s.pair.A, c.Rate)
	case c.Limiter == bench.Netnice && c.Way == bench.Mix:
		return lifts("--user", benchUID), s.daemon.LimitUser(ctx, benchUID, c.Rate)
	case c.Limiter == bench.Netnice && c.Way == bench.Down:
		return lifts("--pid", pid), s.daemon.LimitDownPID(ctx, pid, c.Rate)
	case c.Limiter == bench.Netnice:
		return lifts("--pid", pid), s.daemon.LimitPID(ctx, pid, c.Rate)
	}
	return func() error { return nil }, nil
}
