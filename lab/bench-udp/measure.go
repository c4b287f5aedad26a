package udp

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bench"
	"github.com/netnice/netnice/lab/internal/datagram"
)

const (
	udpPort = bench.SecondPort
	tcpPort = bench.FirstPort
	link    = 14 // bytes of Ethernet header
)

// headers returns the bytes of the IP and UDP headers of a datagram.
func headers(v6 bool) int {
	if v6 {
		return 48
	}
	return 28
}

// traffic holds a cell's processes.
type traffic struct {
	tx *datagram.Sender
	rx *datagram.Receiver
	// tcpTX and tcpRX are the TCP traffic that runs concurrently with the datagrams.
	tcpTX *testbed.Sender
	tcpRX *testbed.Receiver
}

func (t *traffic) close() error {
	var errs []error
	if t.tx != nil {
		errs = append(errs, t.tx.Close())
	}
	if t.tcpTX != nil {
		errs = append(errs, t.tcpTX.Close())
	}
	if t.rx != nil {
		errs = append(errs, t.rx.Close())
	}
	if t.tcpRX != nil {
		errs = append(errs, t.tcpRX.Close())
	}
	return errors.Join(errs...)
}

// measure runs one cell.
func (s *stand) measure(ctx context.Context, _ bench.Options, c bench.Cell) (f bench.CellFigures, err error) {
	t := new(traffic)
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.start(s.pair, c); err != nil {
		return f, err
	}
	pid := t.tx.PID()
	if c.Way == bench.Down {
		pid = t.rx.PID()
	}
	lift, err := s.limit(ctx, c, pid)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, lift()) }()
	if f, err = t.run(ctx, c); err != nil {
		return f, err
	}
	if c.Limiter == bench.None {
		s.free[c.Datagrams] = f.SteadyIP
	}
	return f, nil
}

// start starts the cell's processes, which wait.
func (t *traffic) start(p *testbed.Pair, c bench.Cell) (err error) {
	from, into, to := p.A, p.B, p.B4
	if c.IPv6 {
		to = p.B6
	}
	if c.Way == bench.Down {
		from, into, to = p.B, p.A, p.A4
		if c.IPv6 {
			to = p.A6
		}
	}
	at := netip.AddrPortFrom(to, udpPort)
	if t.rx, err = datagram.StartReceiver(into, at); err != nil {
		return err
	}
	cfg := datagram.SenderConfig{To: at, PayloadBytes: c.PayloadBytes, Remote: c.Way == bench.Down}
	cfg.Rate = c.Offered * float64(c.Rate) * float64(c.PayloadBytes) / float64(c.PayloadBytes+headers(c.IPv6))
	if c.Way == bench.Mix {
		cfg.UID = benchUID
		if t.tcpRX, err = testbed.StartReceiver(into, testbed.ReceiverConfig{Interval: 10 * time.Millisecond}); err != nil {
			return err
		}
		t.tcpTX, err = testbed.StartSender(from, testbed.SenderConfig{
			To: netip.AddrPortFrom(to, tcpPort).String(), Connections: 1, Congestion: c.Congestion, UID: benchUID,
		})
		if err != nil {
			return err
		}
	}
	t.tx, err = datagram.StartSender(from, cfg)
	return err
}

// run has the traffic flow for the cell's interval.
func (t *traffic) run(ctx context.Context, c bench.Cell) (f bench.CellFigures, err error) {
	begin := testbed.Now()
	if err := t.tx.Start(); err != nil {
		return f, err
	}
	if t.tcpTX != nil {
		if _, err := t.tcpTX.Start(); err != nil {
			return f, err
		}
	}
	first, err := t.look(ctx, begin.Add(c.Settle()))
	if err != nil {
		return f, err
	}
	last, err := t.look(ctx, begin.Add(c.Interval))
	if err != nil {
		return f, err
	}
	if err := testbed.Sleep(ctx, 60*time.Millisecond); err != nil { // for the last sample of TCP
		return f, err
	}
	f = bench.CellFigures{Cell: c, Name: c.Name(), Limiter: c.Limiter, Rate: c.Rate, Connections: c.Conns, Congestion: c.Congestion, IPv6: c.IPv6}
	size := float64(c.PayloadBytes + headers(c.IPv6))
	group := 1
	if c.Rate > 0 {
		// A group lasts 10 ms: the lateness of a timer must not be the result.
		group = max(1, int(math.Ceil(float64(c.Rate)/size*10e-3)))
	}
	came, err := t.rx.Arrived(first.sent.At, last.sent.At, group)
	if err != nil {
		return f, err
	}
	all, err := t.rx.Arrived(begin, last.sent.At, group)
	if err != nil {
		return f, err
	}
	sent := last.sent.Sub(first.sent)
	u := &bench.UDPFigures{
		PayloadBytes: c.PayloadBytes, Offered: c.Offered, Arrivals: came, LostFirst: all.Lost - came.Lost,
		Failed: last.sent.Failures(), LateMillis: last.sent.Late.Milliseconds(),
		InCall: sent.InCall.Seconds() / last.sent.At.Sub(first.sent.At).Seconds(),
	}
	f.UDP, f.MachineDropped = u, uint64(came.Refused)
	udp := came.PerSecond * size
	f.SteadyIP, f.SteadyPayload = udp, came.PerSecond*float64(c.PayloadBytes)
	linkRate := came.PerSecond * (size + link)
	if t.tcpTX != nil {
		payload, h, err := t.tcp(&f, first.sent.At, last.sent.At)
		if err != nil {
			return f, err
		}
		f.SteadyPayload += payload
		f.SteadyIP += payload * h.IPFactor
		linkRate += payload * h.LinkFactor
	}
	if limit := float64(c.Rate); limit > 0 {
		u.IPRatio, u.TCPRatio = udp/limit, (f.SteadyIP-udp)/limit
		f.IPRatio, f.PayloadRatio, f.LinkRatio = f.SteadyIP/limit, f.SteadyPayload/limit, linkRate/limit
	}
	if gb := f.SteadyPayload * last.sent.At.Sub(first.sent.At).Seconds() / 1e9; gb > 0 {
		f.CPUPerGB, f.MachinePerGB = (last.cpu-first.cpu)/gb, last.machine.Sub(first.machine).Busy/gb
	}
	return f, nil
}

// tcp ends the TCP sender and returns its payload bytes/s.
func (t *traffic) tcp(f *bench.CellFigures, from, to testbed.Instant) (payload float64, h testbed.Headers, err error) {
	report, err := t.tcpTX.Stop()
	if err != nil {
		return 0, h, err
	}
	f.Retransmits = report.Retransmits()
	rtt := t.tcpTX.RTT(from, to)
	f.RTTMicros, f.RTT95Micros = testbed.Percentile(rtt, 50).Microseconds(), testbed.Percentile(rtt, 95).Microseconds()
	return t.tcpRX.Goodput(0, from, to), testbed.HeadersOfAll(report.AllConns()), nil
}

// reading holds the amounts of work and time until an instant.
type reading struct {
	sent    datagram.Sent
	cpu     float64 // seconds, of all processes
	machine testbed.MachineCPU
}

// look waits for an instant and reads.
func (t *traffic) look(ctx context.Context, at testbed.Instant) (r reading, err error) {
	if err := testbed.Sleep(ctx, max(at.Sub(testbed.Now()), 0)); err != nil {
		return r, err
	}
	if r.sent, err = t.tx.Sent(); err != nil {
		return r, err
	}
	if r.machine, err = testbed.ReadMachineCPU(); err != nil {
		return r, err
	}
	came, err := t.rx.Arrived(0, 0, 1)
	if err != nil {
		return r, err
	}
	r.cpu = r.sent.CPU + came.CPU
	if t.tcpTX == nil {
		return r, nil
	}
	_, tx, err := t.tcpTX.Info()
	if err != nil {
		return r, err
	}
	rx, err := t.tcpRX.CPUSeconds()
	r.cpu += tx + rx
	return r, err
}
