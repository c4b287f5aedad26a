package share

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/bench"
)

const (
	firstPort = 6000
	otherPort = 5999 // port of the program without a limit
	window    = 2 * time.Second
	step      = 500 * time.Millisecond
	settle    = 4 * time.Second
	mss       = 1448
	// ipFactor is IP bytes per byte of payload in full segments of IPv4 with time stamps.
	ipFactor = 1500.0 / mss
)

func (c *cell) measure(ctx context.Context, b *bed.Bed, interval time.Duration) (f figures, err error) {
	f = figures{Name: c.name(), Limiter: c.limiter, Rate: c.rate, Line: c.line, Programs: c.programs, Weighted: c.weighted, Loss: c.loss}
	if c.rtt > 0 {
		f.RTT = c.rtt.String()
	}
	if c.limiter == limiterNetnice {
		if err := b.Up(ctx); err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, b.Down(ctx)) }()
	}
	path := bench.Cell{RTT: c.rtt, Loss: c.loss}
	if c.line {
		path.Line = c.rate
	}
	site, err := bench.Open(path, false)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	if err := c.populate(site); err != nil {
		return f, err
	}
	if err := c.divide(ctx, b, site); err != nil {
		return f, err
	}
	var begin testbed.Instant
	for _, tx := range site.TX {
		if begin, err = tx.Start(); err != nil {
			return f, err
		}
	}
	wait := settle
	if c.line { // an early excess leaves the modem with the rest of the line's rate
		wait *= 2
	}
	if c.rtt > 0 {
		wait += 40 * c.rtt // slow start
	}
	begin = begin.Add(wait)
	if err := testbed.Sleep(ctx, begin.Sub(testbed.Now())); err != nil {
		return f, err
	}
	machineBefore, err := testbed.ReadMachineCPU()
	if err != nil {
		return f, err
	}
	end := begin.Add(interval)
	if err := testbed.Sleep(ctx, end.Sub(testbed.Now())); err != nil {
		return f, err
	}
	machine, err := testbed.ReadMachineCPU()
	if err != nil {
		return f, err
	}
	if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil { // for the last sample
		return f, err
	}
	c.compute(&f, site.RX, begin, end)
	f.CPUPerGB = machine.Sub(machineBefore).Busy / (f.Sum * float64(c.rate) * interval.Seconds() / 1e9)
	round := site.TX[len(site.TX)-1].(*testbed.Sender).Latency(begin, end)
	f.OtherP50, f.OtherP99 = testbed.Percentile(round, 50).Microseconds(), testbed.Percentile(round, 99).Microseconds()
	c.judge(&f)
	return f, nil
}

// populate starts a receiver and the programs; the last is the bystander, which sends small requests.
func (c *cell) populate(site *bench.Site) error {
	cfg := testbed.ReceiverConfig{
		Interval: 20 * time.Millisecond,
		Ports:    []testbed.Port{{Number: otherPort, RequestBytes: 100, ReplyBytes: 100}},
	}
	for i := range c.programs {
		cfg.Ports = append(cfg.Ports, testbed.Port{Number: firstPort + uint16(i)})
	}
	if err := site.Receive(cfg); err != nil {
		return err
	}
	for i := range c.programs {
		if _, err := site.Send(firstPort+uint16(i), testbed.SenderConfig{Connections: c.connections(i), Congestion: "cubic"}); err != nil {
			return err
		}
	}
	_, err := site.Send(otherPort, testbed.SenderConfig{Mode: testbed.Request, RequestBytes: 100, ReplyBytes: 100, Pause: c.pause()})
	if err != nil {
		return err
	}
	for i, tx := range site.TX {
		if err := tx.Connect(); err != nil {
			return fmt.Errorf("program %d: %w", i+1, err)
		}
	}
	return nil
}

// pause returns the pause between a bystander's requests: they must not take a noticeable part of a slow line.
func (c *cell) pause() time.Duration {
	if c.rate < 12_500_000 {
		return 20 * time.Millisecond
	}
	return 5 * time.Millisecond
}

// divide divides the limit among the programs; on a line the bystander is one of them.
func (c *cell) divide(ctx context.Context, b *bed.Bed, site *bench.Site) error {
	limit := uint64(c.limit())
	if c.limiter == limiterHTB {
		var shares []testbed.HTBShare
		for i := range c.programs {
			shares = append(shares, testbed.HTBShare{Port: firstPort + uint16(i), Weight: c.weight(i)})
		}
		if c.line {
			shares = append(shares, testbed.HTBShare{Port: otherPort, Weight: 100})
		}
		return testbed.ShapeHTBShares(site.Pair.A, limit, shares)
	}
	if c.line {
		return c.divideLine(ctx, b, site, limit)
	}
	args := []string{"fair", "--group", "share", "--up", fmt.Sprintf("%dB/s", limit)}
	for i := range c.programs {
		args = append(args, fmt.Sprintf("%d=%d", site.TX[i].PID(), c.weight(i)))
	}
	_, err := b.Netnice(ctx, args...)
	return err
}

func (c *cell) divideLine(ctx context.Context, b *bed.Bed, site *bench.Site, limit uint64) error {
	for i := range c.programs {
		_, err := b.Netnice(ctx, "set", "--pid", fmt.Sprint(site.TX[i].PID()), "--weight", fmt.Sprint(c.weight(i)))
		if err != nil {
			return err
		}
	}
	_, err := b.NetniceIn(ctx, site.Pair.A, "link", testbed.Device, "--up", fmt.Sprintf("%dB/s", limit))
	return err
}

func (c *cell) compute(f *figures, rx bench.Receiver, begin, end testbed.Instant) {
	// HTB counts Ethernet headers, too, while the figures count arrived IP bytes.
	limit := c.limit()
	if c.limiter == limiterHTB && !c.line { // the line's device has no such header
		limit *= 1500.0 / 1514
	}
	over := func(from, to testbed.Instant) (least, most, sum float64) {
		least = math.Inf(1)
		for i := range c.programs {
			rate := rx.Goodput(firstPort+uint16(i), from, to) * ipFactor
			sum += rate
			got := rate / (limit * c.part(i))
			least, most = min(least, got), max(most, got)
		}
		return least, most, sum / float64(c.rate)
	}
	f.LeastMean, f.MostMean, f.Sum = over(begin, end)
	f.Least, f.LeastSum = math.Inf(1), math.Inf(1)
	for from := begin; from.Add(window).Sub(end) <= 0; from = from.Add(step) {
		least, most, sum := over(from, from.Add(window))
		f.Least, f.Most, f.LeastSum = min(f.Least, least), max(f.Most, most), min(f.LeastSum, sum)
	}
}

// judge records the required figures that netnice misses.
func (c *cell) judge(f *figures) {
	if c.limiter != limiterNetnice {
		return
	}
	// Two segments of each connection may lie on either side of a window's edge.
	tolerance := 0.03
	if c.rate <= 1_250_000 {
		tolerance = 0.05
	}
	for i := range c.programs {
		bytes := window.Seconds() * float64(c.rate) * c.part(i)
		tolerance = max(tolerance, float64(2*mss*c.connections(i))/bytes)
	}
	if f.Least < 1-tolerance || f.Most > 1+tolerance {
		f.Missed = append(f.Missed, "part")
	}
	if f.LeastSum < 0.97 {
		f.Missed = append(f.Missed, "sum")
	}
	if c.rate >= 12_500_000 && c.rtt == 0 && f.OtherP99 > 3000 {
		f.Missed = append(f.Missed, "bystander")
	}
}
