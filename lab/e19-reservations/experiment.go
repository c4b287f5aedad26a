// Package e19 re-runs Nemesis' Figure 5. Three TCP connections on a link of 10 Mbit/s begin one after
// another: (200 ms, 3.6 ms, no extra), (10 ms, 1.2 ms, extra) and (10 ms, 6 ms, no extra). The paper's one transmit
// queue also kept the line's queue short. The experiment therefore measures, for four connections of (50 ms, 11 ms, no
// extra), the queue of a modem with the link's rate.
package e19

import (
	"context"
	"flag"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	line      = 1_250_000 // bytes/s
	firstPort = testbed.DefaultPort
	settled   = time.Second
)

type reservation struct {
	period, slice time.Duration
	extra         bool
}

// phase is a time in which the same connections run.
type phase struct {
	Connections int           `json:"connections"`
	Mbit        []stat.Spread `json:"mbit_per_sec"` // per connection, in each second
	Wanted      []float64     `json:"wanted_mbit_per_sec"`
}

type figures struct {
	Phases []phase     `json:"phases"`
	Series [][]float64 `json:"series_per_second"`
	// Queue is the queue at a line of the link's rate for four equal reservations, at each packet.
	Queue stat.Spread `json:"queue_of_four_ms"`
}

func run(ctx context.Context, b *bed.Bed) error {
	reservations := []reservation{
		{200 * time.Millisecond, 3600 * time.Microsecond, false},
		{10 * time.Millisecond, 1200 * time.Microsecond, true},
		{10 * time.Millisecond, 6 * time.Millisecond, false},
	}
	apart := b.Length(8*time.Second, 3*time.Second)
	pair, err := b.LinkedPair(ctx, "10mbit")
	if err != nil {
		return err
	}
	cfg := testbed.ReceiverConfig{}
	var ports []uint16
	for i := range reservations {
		ports = append(ports, firstPort+uint16(i))
		cfg.Ports = append(cfg.Ports, testbed.Port{Number: ports[i]})
	}
	if _, err := b.Receiver(pair.B, cfg); err != nil {
		return err
	}
	var senders []*testbed.Sender
	for i, r := range reservations {
		tx, err := b.Sender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, ports[i]).String(), Congestion: "cubic"})
		if err != nil {
			return err
		}
		if err := b.Reserve(ctx, pair.A, tx.PID(), r.period, r.slice, r.extra); err != nil {
			return err
		}
		senders = append(senders, tx)
	}
	c, err := capture.Start(pair.B)
	if err != nil {
		return err
	}
	begin := testbed.Now()
	for i, tx := range senders {
		if err := testbed.Sleep(ctx, begin.Add(time.Duration(i)*apart).Sub(testbed.Now())); err != nil {
			return err
		}
		if _, err := tx.Start(); err != nil {
			return err
		}
	}
	end := begin.Add(time.Duration(len(senders)) * apart)
	if err := testbed.Sleep(ctx, end.Sub(testbed.Now())); err != nil {
		return err
	}
	packets, err := c.Stop()
	if err != nil {
		return err
	}
	// These are parts of the line: the first's, the rest for the second, and the third's.
	wanted := [][]float64{{0.018}, {0.018, 0.982}, {0.018, 0.382, 0.6}}
	f := figures{Series: flowsOf(packets, ports, begin, end)}
	for i := range reservations {
		p := phase{Connections: i + 1}
		from := begin.Add(time.Duration(i) * apart)
		b.Printf("%d connections: ", i+1)
		for j := range i + 1 {
			rates := capture.Rates(packets, from.Add(settled), from.Add(apart), time.Second, func(q capture.Packet) bool { return q.To == ports[j] })
			for k := range rates {
				rates[k] *= 8 / 1e6
			}
			s := stat.Of(rates)
			want := wanted[i][j] * line * 8 / 1e6
			p.Mbit, p.Wanted = append(p.Mbit, s), append(p.Wanted, want)
			b.Printf(" c%d %.3f Mbit/s (%.3f..%.3f), wanted %.3f;", j+1, s.Mean, s.Min, s.Max, want)
		}
		b.Printf("\n")
		f.Phases = append(f.Phases, p)
	}
	b.Printf("paper: 0.17; 7.5, then 3.5; 4.2 of a guaranteed 5.6 Mbit/s (payload)\n")
	for _, tx := range senders {
		if _, err := tx.Stop(); err != nil {
			return err
		}
	}
	if f.Queue, err = together(ctx, b, pair, ports[0]); err != nil {
		return err
	}
	b.Printf("four of 11 ms in 50: a line of the link's rate queues %.1f ms (median), %.1f at most\n", f.Queue.Median, f.Queue.Max)
	if err := draw(b, f); err != nil {
		return err
	}
	return b.Write(f)
}

// together has four connections with the same reservation begin at the same moment.
func together(ctx context.Context, b *bed.Bed, pair *testbed.Pair, port uint16) (queue stat.Spread, err error) {
	var senders []*testbed.Sender
	for range 4 {
		tx, err := b.Sender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, port).String(), Congestion: "cubic"})
		if err != nil {
			return queue, err
		}
		if err := b.Reserve(ctx, pair.A, tx.PID(), 50*time.Millisecond, 11*time.Millisecond, false); err != nil {
			return queue, err
		}
		senders = append(senders, tx)
	}
	for _, tx := range senders {
		if _, err := tx.Start(); err != nil {
			return queue, err
		}
	}
	if err := testbed.Sleep(ctx, settled); err != nil {
		return queue, err
	}
	c, err := capture.Start(pair.B)
	if err != nil {
		return queue, err
	}
	if err := testbed.Sleep(ctx, b.Length(8*time.Second, 2*time.Second)); err != nil {
		return queue, err
	}
	packets, err := c.Stop()
	if err != nil {
		return queue, err
	}
	var bytes float64
	var each []float64
	var last testbed.Instant
	for _, p := range packets {
		if p.To != port {
			continue
		}
		bytes = max(bytes-p.T.Sub(last).Seconds()*line, 0) + float64(p.Bytes)
		each, last = append(each, bytes/line*1e3), p.T
	}
	return stat.Of(each), nil
}

func flowsOf(packets []capture.Packet, ports []uint16, from, to testbed.Instant) [][]float64 {
	var list [][]float64
	for _, port := range ports {
		list = append(list, capture.Rates(packets, from, to, time.Second, func(q capture.Packet) bool { return q.To == port }))
	}
	return list
}

func draw(b *bed.Bed, f figures) error {
	c := chart.Chart{Title: "Three reservations on a link of 10 Mbit/s, one after another", X: "seconds", Y: "Mbit/s (IP, per second)"}
	for i, rates := range f.Series {
		curve := chart.Curve{Name: []string{"c1 (200 ms, 3.6 ms)", "c2 (10 ms, 1.2 ms, extra)", "c3 (10 ms, 6 ms)"}[i]}
		for s, rate := range rates {
			curve.Points = append(curve.Points, chart.XY{X: float64(s) + 0.5, Y: rate * 8 / 1e6})
		}
		c.Curves = append(c.Curves, curve)
	}
	return b.Draw("", c)
}
