package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/testutil/relay"
)

// benchUID is a user without any other process, for limits of users.
const benchUID = 64209

// bench is what all cells share.
type bench struct {
	limiter  testutil.Command
	quickAck bool
}

// site is a path with a receiver and senders.
type site struct {
	pair    *testutil.Pair
	trickle *trickle // in the place of senders
	rx      *testutil.Receiver
	senders []*testutil.Sender
	to      netip.Addr
}

// open makes the site for a cell with these receiving ports.
func (b *bench) open(c cell, ports ...testutil.Port) (*site, error) {
	s := new(site)
	var err error
	if c.distant() {
		path := relay.RoundTrip(c.rtt)
		path.AtoB.Loss, path.AtoB.Rate, path.Seed = c.loss, wireRate, 1
		s.pair, err = testutil.NewDistantPair(path)
	} else {
		s.pair, err = testutil.NewPair()
	}
	if err != nil {
		return nil, err
	}
	if s.to = s.pair.B4; c.ipv6 {
		s.to = s.pair.B6
	}
	if b.quickAck {
		if err := s.pair.QuickAck(); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if s.rx, err = testutil.StartReceiver(s.pair.B, testutil.ReceiverConfig{Ports: ports}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// sender starts a sender to the port.
func (s *site) sender(port uint16, cfg testutil.SenderConfig) (*testutil.Sender, error) {
	cfg.To = netip.AddrPortFrom(s.to, port).String()
	tx, err := testutil.StartSender(s.pair.A, cfg)
	if err != nil {
		return nil, err
	}
	s.senders = append(s.senders, tx)
	return tx, nil
}

func (s *site) close() error {
	var errs []error
	for _, tx := range s.senders {
		errs = append(errs, tx.Close())
	}
	if s.trickle != nil {
		errs = append(errs, s.trickle.close())
	}
	if s.rx != nil {
		errs = append(errs, s.rx.Close())
	}
	return errors.Join(append(errs, s.pair.Close())...)
}

// reference measures the smoothed round trip of a path without load: small
// requests one after the other, and single writes of 64 KB, which is the
// largest chunk that TCP gives to a device.
func (b *bench) reference(ctx context.Context) (path pathFigures, err error) {
	median := func(request int) (_ int64, err error) {
		s, err := b.open(cell{}, testutil.Port{Number: 5001, RequestBytes: request, ReplyBytes: 100})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		tx, err := s.sender(5001, testutil.SenderConfig{
			Mode: testutil.Request, RequestBytes: request, ReplyBytes: 100, Pause: 2 * time.Millisecond,
		})
		if err != nil {
			return 0, err
		}
		begin, err := tx.Start()
		if err != nil {
			return 0, err
		}
		if err := testutil.Sleep(ctx, 600*time.Millisecond); err != nil {
			return 0, err
		}
		if _, err := tx.Stop(); err != nil {
			return 0, err
		}
		return testutil.Percentile(tx.RTT(begin, testutil.Now()), 50).Microseconds(), nil
	}
	if path.SmallMicros, err = median(600); err != nil {
		return path, err
	}
	path.ChunkMicros, err = median(64 << 10)
	return path, err
}

// measure runs one cell.
func (b *bench) measure(ctx context.Context, c cell) (f cellFigures, err error) {
	s, err := b.open(c, testutil.Port{Number: 5001}, testutil.Port{Number: 5002})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if c.limiter == limiterTrickle {
		if s.trickle, err = startTrickle(s, c.rate); err != nil {
			return f, err
		}
		return s.traffic(ctx, c)
	}
	cfg := testutil.SenderConfig{Connections: c.conns, Congestion: c.congestion}
	if c.shares {
		cfg.UID = benchUID
	}
	first, err := s.sender(5001, cfg)
	if err != nil {
		return f, err
	}
	if c.shares {
		cfg.Connections = 1
		if _, err := s.sender(5002, cfg); err != nil {
			return f, err
		}
	}
	lift, err := b.limit(ctx, c, s, first.PID())
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, lift()) }()
	return s.traffic(ctx, c)
}

// limit puts the cell's limit in place and returns what lifts it.
func (b *bench) limit(ctx context.Context, c cell, s *site, pid int) (lift func() error, err error) {
	nothing := func() error { return nil }
	after := context.WithoutCancel(ctx)
	switch {
	case c.limiter == limiterHTB:
		return nothing, testutil.ShapeHTB(s.pair.A, c.rate) // goes with the namespace
	case c.limiter == limiterTBF:
		return nothing, testutil.ShapeTBF(s.pair.A, c.rate)
	case c.limiter == limiterNetnice && c.shares:
		err = b.limiter.LimitUser(ctx, benchUID, c.rate)
		return func() error { return b.limiter.LiftUser(after, benchUID) }, err
	case c.limiter == limiterNetnice:
		err = b.limiter.LimitPID(ctx, pid, c.rate)
		return nothing, err // goes with the process
	}
	return nothing, nil
}

// traffic lets every sender send for the cell's interval.
func (s *site) traffic(ctx context.Context, c cell) (cellFigures, error) {
	f := cellFigures{cell: c, Name: c.name(), Limiter: c.limiter, Rate: c.rate, Connections: c.conns, Congestion: c.congestion, IPv6: c.ipv6, Loss: c.loss}
	if c.distant() {
		f.RoundTrip = c.rtt.String()
	}
	for _, tx := range s.senders {
		if err := tx.Connect(); err != nil {
			return f, err
		}
	}
	rxBefore, err := s.rx.CPUSeconds()
	if err != nil {
		return f, err
	}
	machineBefore, err := testutil.ReadMachineCPU()
	if err != nil {
		return f, err
	}
	begin := testutil.Now()
	if s.trickle != nil {
		if err := s.trickle.start(); err != nil {
			return f, err
		}
	}
	for _, tx := range s.senders {
		if _, err := tx.Start(); err != nil {
			return f, err
		}
	}
	steady, end := begin.Add(c.settle()), begin.Add(c.interval)
	sentSteady, err := s.sent(ctx, steady)
	if err != nil {
		return f, err
	}
	sentEnd, err := s.sent(ctx, end)
	if err != nil {
		return f, err
	}
	machine, err := testutil.ReadMachineCPU()
	if err != nil {
		return f, err
	}
	rxCPU, err := s.rx.CPUSeconds()
	if err != nil {
		return f, err
	}
	if err := testutil.Sleep(ctx, 60*time.Millisecond); err != nil { // for the last sample
		return f, err
	}
	f.machineCPU = machine.Sub(machineBefore).Busy
	f.processCPU = rxCPU - rxBefore
	var conns []testutil.ConnInfo
	for i, tx := range s.senders {
		report, err := tx.Stop()
		if err != nil {
			return f, fmt.Errorf("sender %d: %w", i+1, err)
		}
		conns = append(conns, report.AllConns()...)
		f.processCPU += report.TotalCPU()
		f.Retransmits += report.Retransmits()
		f.rtt = append(f.rtt, tx.RTT(steady, end)...)
	}
	if s.pair.Relay != nil {
		f.Sent = float64(sentEnd.BytesIn-sentSteady.BytesIn) / end.Sub(steady).Seconds()
		f.PathLost, f.PathDropped = int(sentEnd.Lost), int(sentEnd.Dropped+sentEnd.Unwanted())
		f.PathLateMillis = sentEnd.MostLate.Milliseconds()
	}
	if s.trickle != nil { // its socket cannot be asked
		conns = []testutil.ConnInfo{{MSS: 1448, Timestamps: true, IPv6: c.ipv6}}
	}
	f.compute(s.rx, testutil.HeadersOfAll(conns), begin, end)
	return f, nil
}

// sent waits for an instant and returns what has entered the relay, if there is
// one.
func (s *site) sent(ctx context.Context, at testutil.Instant) (relay.Counters, error) {
	if err := testutil.Sleep(ctx, max(at.Sub(testutil.Now()), 0)); err != nil || s.pair.Relay == nil {
		return relay.Counters{}, err
	}
	c, _, err := s.pair.Relay.Counters()
	return c, err
}
