// Package adapt sends UDP without a congestion control through bottlenecks, as fast as the sender may, with
// and without netnice adapt. It measures the used part of the bottleneck, the loss in the network, and the rate of a
// concurrent TCP connection. It also measures how soon netnice follows a changed bottleneck.
package adapt

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/datagram"
	"github.com/netnice/netnice/lab/internal/routed"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	only := flags.String("only", "", "only cells whose name matches this `REGEXP`")
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error { return run(ctx, b, *only) })
}

const (
	payload = 1400
	packet  = payload + 28 // IP bytes
	udpPort = 6000
)

// cell is one run.
type cell struct {
	name  string
	rate  float64 // rate of the bottleneck, IP bytes/s
	burst int     // bytes of the bottleneck's bucket
	queue int     // bytes of the queue before the bottleneck
	adapt bool
	tcp   string  // congestion control of a concurrent TCP connection; "" = none
	times float64 // change of the capacity in the middle, as a factor; 0 = no change
	share string
	v6    bool
	// settle is the time before the measurement, and over is its length.
	settle, over time.Duration
}

func cells(b *bed.Bed) (list []cell) {
	for _, bottleneck := range []struct {
		name         string
		rate         float64
		burst, queue int
		slow         time.Duration
	}{
		{"28kbit", 3500, 4750, 4925, 60 * time.Second},
		{"28kbit 15KB queue", 3500, 4750, 15e3, 100 * time.Second},
		{"1mbit", 125e3, 1600, 16e3, 10 * time.Second},
		{"10mbit", 1.25e6, 1600, 60e3, 8 * time.Second},
		{"10mbit 64KB bucket", 1.25e6, 64 << 10, 60e3 + 64<<10, 8 * time.Second},
		{"10mbit short queue", 1.25e6, 1600, 8e3, 8 * time.Second},
		{"100mbit", 12.5e6, 16e3, 500e3, 8 * time.Second},
		{"1gbit", 125e6, 128e3, 4e6, 12 * time.Second},
	} {
		c := cell{name: bottleneck.name, rate: bottleneck.rate, burst: bottleneck.burst, queue: bottleneck.queue}
		c.settle, c.over = b.Length(bottleneck.slow, bottleneck.slow/2), b.Length(max(bottleneck.slow, 15*time.Second), 6*time.Second)
		for _, tcp := range []string{"", "cubic"} {
			for _, adapt := range []bool{false, true} {
				with := c
				with.adapt, with.tcp = adapt, tcp
				list = append(list, with)
			}
		}
	}
	ten := cell{name: "10mbit", rate: 1.25e6, burst: 1600, queue: 60e3, adapt: true, settle: b.Length(12*time.Second, 8*time.Second), over: b.Length(10*time.Second, 6*time.Second)}
	for _, change := range []func(*cell){
		func(c *cell) { c.tcp = "bbr" },
		func(c *cell) { c.tcp, c.share = "cubic", "30%" },
		func(c *cell) { c.v6 = true },
		func(c *cell) { c.v6, c.tcp = true, "cubic" },
		func(c *cell) { c.times = 0.5 },
		func(c *cell) { c.times = 2 },
	} {
		with := ten
		change(&with)
		list = append(list, with)
	}
	return list
}

func (c cell) String() string {
	s := "unpaced"
	if c.adapt {
		s = "adapt"
	}
	s += " " + c.name
	if c.v6 {
		s += " IPv6"
	}
	if c.tcp != "" {
		s += " beside " + c.tcp
	}
	if c.share != "" {
		s += " share " + c.share
	}
	if c.times != 0 {
		s += fmt.Sprintf(" then x%g", c.times)
	}
	return s
}

// figures holds the figures of a cell; parts are relative to the bottleneck.
type figures struct {
	Name    string    `json:"name"`
	UDP     float64   `json:"udp"`     // arrived
	TCP     float64   `json:"tcp"`     // arrived payload, converted to IP bytes
	Arrived float64   `json:"arrived"` // arrived part of the sent datagrams
	Lost    int64     `json:"lost"`
	First   float64   `json:"first"`          // arrived part of the first datagrams: those of 5 s, or 50
	Late    uint64    `json:"late,omitempty"` // datagrams that arrived behind a later one
	Mode    string    `json:"mode,omitempty"`
	QueueMS float64   `json:"queue_ms,omitempty"`
	Window  int       `json:"window,omitempty"`
	Probes  float64   `json:"probes"` // as a part of the bottleneck
	Settled float64   `json:"settled_after_s,omitempty"`
	Rates   []float64 `json:"udp_by_second"`
}

func (f figures) String() string {
	line := fmt.Sprintf("%-34s %7.3f %7.3f %9.4f %8d %8.4f %7.3f", f.Name, f.UDP, f.TCP, f.Arrived, f.Lost, f.First, f.Probes)
	if f.Mode != "" {
		line += fmt.Sprintf("  %-5s %6.1f ms", f.Mode, f.QueueMS)
	}
	if f.Window != 0 {
		line += fmt.Sprintf("  window %d", f.Window)
	}
	if f.Late != 0 {
		line += fmt.Sprintf("  %d late", f.Late)
	}
	if f.Settled != 0 {
		line += fmt.Sprintf("  settled after %.0f s", f.Settled)
	}
	return line
}

func run(ctx context.Context, b *bed.Bed, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if err := b.Up(ctx); err != nil {
		return err
	}
	var all []figures
	var curves []chart.Curve
	b.Printf("%-34s %7s %7s %9s %8s %8s %7s\n", "parts of the bottleneck", "UDP", "TCP", "arrived", "lost", "at first", "probes")
	for _, c := range cells(b) {
		if !wanted.MatchString(c.String()) {
			continue
		}
		f, err := measure(ctx, b, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		all = append(all, f)
		b.Printf("%s\n", f)
		if c.times != 0 {
			curve := chart.Curve{Name: c.String()}
			for i, r := range f.Rates {
				curve.Points = append(curve.Points, chart.XY{X: float64(i), Y: r * c.rate / 1e6})
			}
			curves = append(curves, curve)
		}
	}
	speaking, err := calls(ctx, b, wanted.MatchString)
	if err != nil {
		return err
	}
	if len(curves) > 0 {
		if err := b.Draw("", chart.Chart{Title: "UDP under adapt, the bottleneck halved and doubled", X: "s", Y: "MB/s that arrive", Curves: curves}); err != nil {
			return err
		}
	}
	return b.Write(struct {
		Bulk  []figures     `json:"bulk"`
		Calls []callFigures `json:"calls"`
	}{all, speaking})
}

func measure(ctx context.Context, b *bed.Bed, c cell) (f figures, err error) {
	f.Name = c.String()
	s, err := routed.Open(1)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Shape(c.rate, c.burst, c.queue); err != nil {
		return f, err
	}
	sink := s.Sink4
	if c.v6 {
		sink = s.Sink6
	}
	at := netip.AddrPortFrom(sink, udpPort)
	rx, err := datagram.StartReceiver(s.Sink, at)
	if err != nil {
		return f, err
	}
	defer rx.Close()
	tcp, err := testbed.StartReceiver(s.Sink, testbed.ReceiverConfig{})
	if err != nil {
		return f, err
	}
	defer tcp.Close()
	if c.tcp != "" {
		other, err := testbed.StartSender(s.Others, testbed.SenderConfig{To: netip.AddrPortFrom(sink, testbed.DefaultPort).String(), Congestion: c.tcp})
		if err != nil {
			return f, err
		}
		defer other.Close()
		if _, err := other.Start(); err != nil {
			return f, err
		}
		if err := testbed.Sleep(ctx, 2*time.Second); err != nil {
			return f, err
		}
	}
	flood := datagram.SenderConfig{To: at, PayloadBytes: payload} // sends as fast as it may
	if !c.adapt {
		flood.Remote, flood.Rate = true, 10*c.rate // a processor's worth of datagrams would only add to the loss
	}
	tx, err := datagram.StartSender(s.Source, flood)
	if err != nil {
		return f, err
	}
	defer tx.Close()
	if c.adapt {
		args := []string{"adapt", sink.String()}
		if c.share != "" {
			args = append(args, "--share", c.share)
		}
		if _, err := b.NetniceIn(ctx, s.Source, args...); err != nil {
			return f, err
		}
		defer func() {
			_, off := b.NetniceIn(context.WithoutCancel(ctx), s.Source, "adapt", sink.String(), "off")
			err = errors.Join(err, off)
		}()
	}
	if err := tx.Start(); err != nil {
		return f, err
	}
	return f, f.watch(ctx, b, c, s, rx, tcp)
}

// watch measures the arriving traffic once the rates are steady, and the reaction to a change.
func (f *figures) watch(ctx context.Context, b *bed.Bed, c cell, s *routed.Site, rx *datagram.Receiver, tcp *testbed.Receiver) error {
	begin := testbed.Now()
	if err := testbed.Sleep(ctx, c.settle); err != nil {
		return err
	}
	first, err := rx.Arrived(begin, begin.Add(max(5*time.Second, time.Duration(50*packet/c.rate*1e9))), 1)
	if err != nil {
		return err
	}
	f.First = first.Part()
	rate := c.rate
	if c.times != 0 {
		rate *= c.times
		if err := s.Shape(rate, c.burst, c.queue); err != nil {
			return err
		}
	}
	from := testbed.Now()
	probed, err := probedBytes(ctx, b)
	if err != nil {
		return err
	}
	if err := testbed.Sleep(ctx, c.over); err != nil {
		return err
	}
	to := testbed.Now()
	if c.times != 0 {
		from = from.Add(5 * time.Second) // a change may take that long
	}
	if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil { // for the last sample
		return err
	}
	a, err := rx.Arrived(from, to, 1)
	if err != nil {
		return err
	}
	over := to.Sub(from).Seconds()
	f.UDP = float64(a.Count) * packet / over / rate
	f.TCP = tcp.Goodput(0, from, to) * 1500 / 1448 / rate
	f.Lost, f.Late = a.Lost, a.Late
	f.Arrived = a.Part()
	for t := begin; t < to; t = t.Add(time.Second) {
		one, err := rx.Arrived(t, t.Add(time.Second), 1)
		if err != nil {
			return err
		}
		f.Rates = append(f.Rates, float64(one.Count)*packet/c.rate)
	}
	if c.times != 0 {
		f.Settled = settled(f.Rates, int(c.settle.Seconds()), c.times)
	}
	if !c.adapt {
		return nil
	}
	list, err := b.Client.Adapted(ctx)
	if err != nil || len(list.Adapted) == 0 {
		return errors.Join(err, errors.New("nothing is adapted"))
	}
	f.Mode, f.QueueMS = list.Adapted[0].Mode, float64(list.Adapted[0].QueueNS)/1e6
	f.Window = list.Adapted[0].WindowPackets
	f.Probes = (float64(list.Adapted[0].ProbedBytes) - probed) / c.over.Seconds() / rate
	return nil
}

// probedBytes returns the bytes of all probes so far.
func probedBytes(ctx context.Context, b *bed.Bed) (float64, error) {
	list, err := b.Client.Adapted(ctx)
	if err != nil || len(list.Adapted) == 0 {
		return 0, err
	}
	return float64(list.Adapted[0].ProbedBytes), nil
}

// settled returns the number of seconds until the rate is within a tenth of its final value and stays there. It
// tolerates the second in which adapt checks whether other traffic takes the rest.
func settled(rates []float64, at int, want float64) float64 {
	for i := at; i < len(rates)-1; i++ {
		away := 0
		for _, r := range rates[i : len(rates)-1] {
			if r < 0.9*want*0.95 || r > 1.1*want {
				away++
			}
		}
		if away <= 1 {
			return float64(i - at + 1)
		}
	}
	return float64(len(rates) - at)
}
