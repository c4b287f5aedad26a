package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// Traffic has every sender send for the cell's interval and returns the figures.
func (s *Site) Traffic(ctx context.Context, c Cell) (CellFigures, error) {
	f := CellFigures{Cell: c, Name: c.Name(), Limiter: c.Limiter, Rate: c.Rate, Connections: c.Conns, Congestion: c.Congestion, IPv6: c.IPv6, Loss: c.Loss}
	if c.Distant() {
		f.RoundTrip = c.RTT.String()
	}
	for _, tx := range s.TX {
		if err := tx.Connect(); err != nil {
			return f, err
		}
	}
	rxBefore, err := s.RX.CPUSeconds()
	if err != nil {
		return f, err
	}
	machineBefore, err := testbed.ReadMachineCPU()
	if err != nil {
		return f, err
	}
	begin := testbed.Now()
	for _, tx := range s.TX {
		if _, err := tx.Start(); err != nil {
			return f, err
		}
	}
	steady, end := begin.Add(c.Settle()), begin.Add(c.Interval)
	sentSteady, err := s.sent(ctx, steady)
	if err != nil {
		return f, err
	}
	sentEnd, err := s.sent(ctx, end)
	if err != nil {
		return f, err
	}
	machine, err := testbed.ReadMachineCPU()
	if err != nil {
		return f, err
	}
	rxCPU, err := s.RX.CPUSeconds()
	if err != nil {
		return f, err
	}
	if err := testbed.Sleep(ctx, 60*time.Millisecond); err != nil { // for the last sample
		return f, err
	}
	f.machineCPU = machine.Sub(machineBefore).Busy
	f.processCPU = rxCPU - rxBefore
	if s.Pair.Relay != nil {
		f.Sent = float64(sentEnd.BytesIn-sentSteady.BytesIn) / end.Sub(steady).Seconds()
		f.PathLost, f.PathDropped = int(sentEnd.Lost), int(sentEnd.Dropped+sentEnd.Unwanted())
		f.PathLateMillis = sentEnd.MostLate.Milliseconds()
	}
	conns, err := s.stop(&f, steady, end)
	if err != nil {
		return f, err
	}
	f.compute(s.RX, testbed.HeadersOfAll(conns), begin, end)
	return f, nil
}

// stop ends the senders and records their reports, with round trips between two instants. It returns their
// connections.
func (s *Site) stop(f *CellFigures, from, to testbed.Instant) (conns []testbed.ConnInfo, err error) {
	for i, tx := range s.TX {
		report, err := tx.Stop()
		if err != nil {
			return nil, fmt.Errorf("sender %d: %w", i+1, err)
		}
		conns = append(conns, report.AllConns()...)
		f.processCPU += report.TotalCPU()
		f.Retransmits += report.Retransmits()
		f.rtt = append(f.rtt, tx.RTT(from, to)...)
	}
	return conns, nil
}

// sent waits for an instant and returns the relay's counters of the direction to the receiver. They are zero without a
// relay.
func (s *Site) sent(ctx context.Context, at testbed.Instant) (relay.Counters, error) {
	if err := testbed.Sleep(ctx, max(at.Sub(testbed.Now()), 0)); err != nil || s.Pair.Relay == nil {
		return relay.Counters{}, err
	}
	c, _, err := s.Pair.Relay.Counters()
	return c, err
}
