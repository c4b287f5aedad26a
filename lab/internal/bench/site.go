package bench

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// These are the receiver's ports: one for the cell's program, one for the second program of Shares.
const (
	FirstPort  = testbed.DefaultPort
	SecondPort = testbed.DefaultPort + 1
)

// Receiver is the receiving program at the far end: a testbed.Receiver, or an equivalent.
type Receiver interface {
	PID() int
	CPUSeconds() (float64, error)
	Bytes(port uint16, at testbed.Instant) float64
	Goodput(port uint16, from, to testbed.Instant) float64
	ConnGoodputs(port uint16, from, to testbed.Instant) []float64
	MostGoodput(from, to testbed.Instant, length time.Duration) float64
	LongestGap(from, to testbed.Instant) time.Duration
	Close() error
}

// Sender is a sending program: a testbed.Sender, or an equivalent.
type Sender interface {
	PID() int
	Connect() error
	Start() (testbed.Instant, error)
	RTT(from, to testbed.Instant) []time.Duration
	Stop() (testbed.SenderReport, error)
	Close() error
}

// Site is a path with a receiver and senders, which it closes.
type Site struct {
	Pair *testbed.Pair
	To   netip.Addr // address of the receiver
	RX   Receiver
	TX   []Sender
}

// Open makes the path of a cell, without any program yet.
func Open(c Cell, quickAck bool) (*Site, error) {
	s := new(Site)
	var err error
	if c.Distant() {
		path := relay.RoundTrip(c.RTT)
		path.AtoB.Loss, path.AtoB.Rate, path.Seed = c.Loss, cmp.Or(c.Line, WireRate), 1
		s.Pair, err = testbed.NewDistantPair(path)
	} else {
		s.Pair, err = testbed.NewPairInOrder()
	}
	if err != nil {
		return nil, err
	}
	if s.To = s.Pair.B4; c.IPv6 {
		s.To = s.Pair.B6
	}
	if quickAck {
		if err := s.Pair.QuickAck(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Receive starts the receiver.
func (s *Site) Receive(cfg testbed.ReceiverConfig) error {
	rx, err := testbed.StartReceiver(s.Pair.B, cfg)
	if err == nil { // a nil *Receiver would not be a nil interface
		s.RX = rx
	}
	return err
}

// Send starts a sender to the port.
func (s *Site) Send(port uint16, cfg testbed.SenderConfig) (*testbed.Sender, error) {
	cfg.To = netip.AddrPortFrom(s.To, port).String()
	tx, err := testbed.StartSender(s.Pair.A, cfg)
	if err != nil {
		return nil, err
	}
	s.TX = append(s.TX, tx)
	return tx, nil
}

// Close ends all programs and removes the path.
func (s *Site) Close() error {
	var errs []error
	for _, tx := range s.TX {
		errs = append(errs, tx.Close())
	}
	if s.RX != nil {
		errs = append(errs, s.RX.Close())
	}
	return errors.Join(append(errs, s.Pair.Close())...)
}

// reference measures the smoothed round trip of a path without load. It sends small requests one after the other,
// and single writes of 64 KB, which is the largest chunk that TCP gives to a device.
func reference(ctx context.Context, quickAck bool) (path Path, err error) {
	median := func(request int) (_ int64, err error) {
		s, err := Open(Cell{}, quickAck)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		port := testbed.Port{Number: testbed.DefaultPort, RequestBytes: request, ReplyBytes: 100}
		if err := s.Receive(testbed.ReceiverConfig{Ports: []testbed.Port{port}}); err != nil {
			return 0, err
		}
		tx, err := s.Send(port.Number, testbed.SenderConfig{
			Mode: testbed.Request, RequestBytes: request, ReplyBytes: 100, Pause: 2 * time.Millisecond,
		})
		if err != nil {
			return 0, err
		}
		begin, err := tx.Start()
		if err != nil {
			return 0, err
		}
		if err := testbed.Sleep(ctx, 600*time.Millisecond); err != nil {
			return 0, err
		}
		if _, err := tx.Stop(); err != nil {
			return 0, err
		}
		return testbed.Percentile(tx.RTT(begin, testbed.Now()), 50).Microseconds(), nil
	}
	if path.SmallMicros, err = median(600); err != nil {
		return path, err
	}
	path.ChunkMicros, err = median(64 << 10)
	return path, err
}
