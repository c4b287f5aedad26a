// Package narrow runs the transfers of topp's experiments through a token bucket of 28 kbit/s. They run alone or
// next to a TCP connection from another host, unchanged or under netnice adapt.
package narrow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/datagram"
	"github.com/netnice/netnice/lab/internal/routed"
)

// This is the paper's bottleneck: tc qdisc add dev eth0 tbf burst 4750 rate 28kbit latency 50ms.
const (
	bitsPerSec = 28_000
	linkBytes  = bitsPerSec / 8
	burst      = 4750
	queue      = burst + linkBytes/20
	payload    = 516 // payload of a datagram: TFTP's, with 512 bytes of a file
	udpPort    = 6000
	offered    = 40_000 // payload bytes/s of a sender without congestion control: ten times the capacity
	segment    = 1448
	// PathRate is the path's rate in IP bytes/s for these datagrams; the link counts 14 bytes more for each.
	PathRate    = linkBytes * (payload + 28) / (payload + 42)
	step        = 5 * time.Second // interval of the figures over time, as in the paper
	settle      = 20 * time.Second
	settleQuick = 5 * time.Second
)

// Transfer is a transfer of an experiment.
type Transfer struct {
	Name string
	// UDP selects UDP instead of TCP.
	UDP bool
	// Beside adds a TCP connection from another host.
	Beside bool
	// Adapt puts the transfer under adapt. AdaptBeside does so with the other connection.
	Adapt, AdaptBeside bool
	// Limit is a fixed limit on the transfer in IP bytes/s, which needs no probes; 0 = none.
	Limit int
	// TCPOf2001 gives both sending hosts the TCP of the paper's time: reno, and the settings of settingsOf2001.
	TCPOf2001 bool
	// FileBytes is the size of a file that TFTP sends until it is complete, in windows of WindowBlocks; 0 = the
	// transfer has no end.
	FileBytes, WindowBlocks int
}

// Figures holds the figures of a transfer, over the measured time.
type Figures struct {
	Name        string    `json:"name"`
	Seconds     float64   `json:"seconds"`
	BitsPerSec  float64   `json:"payload_bits_per_sec"` // arrived payload
	Sent        uint64    `json:"packets_sent"`
	Arrived     uint64    `json:"packets_arrived"`
	Again       int       `json:"segments_sent_again,omitempty"`
	BesideBits  float64   `json:"beside_bits_per_sec,omitempty"`
	Dropped     uint64    `json:"dropped_by_the_bottleneck"`
	Mode        string    `json:"mode,omitempty"`
	Rates       []float64 `json:"bits_per_sec_by_5_s"`
	BesideRates []float64 `json:"beside_by_5_s,omitempty"`
	// SentBy and LostBy count datagrams by the numbers in them.
	SentBy []float64 `json:"packets_sent_by_5_s,omitempty"`
	LostBy []float64 `json:"packets_lost_by_5_s,omitempty"`
	File   *File     `json:"file,omitempty"`

	from testbed.Instant // start of the measured time
}

// ArrivedPart returns the arrived part of the sent packets.
func (f Figures) ArrivedPart() float64 { return float64(f.Arrived) / max(float64(f.Sent), 1) }

func (f Figures) String() string {
	line := fmt.Sprintf("%-22s %6.2f kbit/s, %5d of %5d packets arrived (%.3f), %4d dropped", f.Name, f.BitsPerSec/1000, f.Arrived, f.Sent, f.ArrivedPart(), f.Dropped)
	if f.Again > 0 {
		line += fmt.Sprintf(", %d sent again", f.Again)
	}
	if f.File != nil {
		line += "; " + f.File.after(f.Seconds)
	}
	if f.BesideBits > 0 || len(f.BesideRates) > 0 {
		line += fmt.Sprintf("; beside %6.2f kbit/s", f.BesideBits/1000)
	}
	if f.Mode != "" {
		line += " (" + f.Mode + ")"
	}
	return line
}

// Experiment compares two transfers.
type Experiment struct {
	Title string
	Over  time.Duration // measured time; a sixth of it in the quick version
	// Transfers are the two that are compared, and the same under other conditions, if there are any.
	Transfers []Transfer
	// Copies is the number of runs of each transfer, 1 if it is 0. What TCP has of so short a queue is chance: the
	// figures that count are the means.
	Copies int
	// Compare returns the result of the two, and that of the paper.
	Compare func(before, after Figures) string
}

// Main runs an experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string, e Experiment) int {
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		copies := max(e.Copies, 1)
		var list []Transfer
		for _, t := range e.Transfers {
			list = append(list, slices.Repeat([]Transfer{t}, copies)...)
		}
		found, err := Run(ctx, b, b.Length(e.Over, e.Over/6), list...)
		if err != nil {
			return err
		}
		means := make([]Figures, len(e.Transfers))
		for i := range means {
			means[i] = Mean(found[i*copies : (i+1)*copies])
		}
		if copies > 1 {
			b.Printf("means of %d\n", copies)
			for _, f := range means {
				b.Printf("%s\n", f)
			}
		}
		b.Printf("%s\n", e.Compare(means[0], means[1]))
		if err := draw(b, e.Title, []Figures{found[0], found[copies]}); err != nil {
			return err
		}
		return b.Write(found)
	})
}

// Mean returns the figures of a transfer as if its runs had been one.
func Mean(runs []Figures) Figures {
	mean := Figures{Name: runs[0].Name}
	n := float64(len(runs))
	for _, f := range runs {
		mean.Seconds += f.Seconds / n
		mean.BitsPerSec += f.BitsPerSec / n
		mean.BesideBits += f.BesideBits / n
		mean.Sent += f.Sent
		mean.Arrived += f.Arrived
		mean.Again += f.Again
		mean.Dropped += f.Dropped
	}
	mean.Sent, mean.Arrived = mean.Sent/uint64(len(runs)), mean.Arrived/uint64(len(runs))
	mean.Again, mean.Dropped = mean.Again/len(runs), mean.Dropped/uint64(len(runs))
	return mean
}

// Run runs transfers at the same time, each with a bottleneck of its own: they are slow, and need hardly any
// processor time.
func Run(ctx context.Context, b *bed.Bed, over time.Duration, list ...Transfer) ([]Figures, error) {
	if err := b.Up(ctx); err != nil {
		return nil, err
	}
	first, err := firstSite(b.Name)
	if err != nil {
		return nil, err
	}
	found, problems := make([]Figures, len(list)), make([]error, len(list))
	var group sync.WaitGroup
	for i, t := range list {
		group.Go(func() {
			if found[i], problems[i] = run(ctx, b, t, first+i, over); problems[i] != nil {
				problems[i] = fmt.Errorf("%s: %w", t.Name, problems[i])
			}
		})
	}
	group.Wait()
	for _, f := range found {
		b.Printf("%s\n", f)
	}
	return found, errors.Join(problems...)
}

// firstSite returns the number of an experiment's first site. Each experiment has 16 of its own, so that several can run
// at the same time: a limit on a destination holds in every namespace.
func firstSite(experiment string) (int, error) {
	var number int
	if _, err := fmt.Sscanf(experiment, "e%d-", &number); err != nil {
		return 0, fmt.Errorf("read the number of experiment %q: %w", experiment, err)
	}
	return 1 + 16*(number%15), nil
}

// draw draws the arriving traffic of each transfer, and of the concurrent connection.
func draw(b *bed.Bed, title string, list []Figures) error {
	c := chart.Chart{Title: title, X: "s", Y: "kbit/s that arrive"}
	for _, f := range list {
		c.Curves = append(c.Curves, Curve(f.Name, f.Rates, 1e-3))
		if len(f.BesideRates) > 0 {
			c.Curves = append(c.Curves, Curve("beside "+f.Name, f.BesideRates, 1e-3))
		}
	}
	return b.Draw("", c)
}

// Curve returns the figures over time as a curve, times a factor.
func Curve(name string, values []float64, factor float64) chart.Curve {
	curve := chart.Curve{Name: name}
	for i, v := range values {
		curve.Points = append(curve.Points, chart.XY{X: float64(i) * step.Seconds(), Y: v * factor})
	}
	return curve
}

func run(ctx context.Context, b *bed.Bed, t Transfer, number int, over time.Duration) (f Figures, err error) {
	f.Name = t.Name
	s, err := routed.Open(number)
	if err != nil {
		return f, err
	}
	b.Defer(s.Close)
	if err := s.Shape(linkBytes*1500/1514, burst, queue); err != nil {
		return f, err
	}
	if t.TCPOf2001 {
		if err := age(s); err != nil {
			return f, err
		}
	}
	ports := []testbed.Port{{Number: testbed.DefaultPort}, {Number: testbed.DefaultPort + 1}}
	tcp, err := b.Receiver(s.Sink, testbed.ReceiverConfig{Ports: ports})
	if err != nil {
		return f, err
	}
	if err := t.prepare(ctx, b, s); err != nil {
		return f, err
	}
	if t.Beside {
		if err := startBeside(b, s); err != nil {
			return f, err
		}
	}
	switch {
	case t.FileBytes > 0:
		return f, f.file(ctx, b, s, tcp, t, over)
	case t.UDP:
		return f, f.datagrams(ctx, b, s, tcp, t, over)
	}
	return f, f.segments(ctx, b, s, tcp, t, over)
}

// startBeside starts the connection from the other host.
func startBeside(b *bed.Bed, s *routed.Site) error {
	other, err := b.Sender(s.Others, testbed.SenderConfig{To: netip.AddrPortFrom(s.Other4, testbed.DefaultPort+1).String(), Congestion: "cubic"})
	if err != nil {
		return err
	}
	_, err = other.Start()
	return err
}

// prepare puts the transfer, and the other connection, under adapt or a limit.
func (t Transfer) prepare(ctx context.Context, b *bed.Bed, s *routed.Site) error {
	for _, one := range []struct {
		on   bool
		from *testbed.NetNS
		args []string
	}{
		{t.Adapt && t.UDP, s.Source, []string{"adapt", s.Sink4.String()}},
		{t.Adapt && !t.UDP, s.Source, []string{"adapt", s.Sink4.String(), "--tcp"}},
		{t.AdaptBeside, s.Others, []string{"adapt", s.Other4.String(), "--tcp"}},
		{t.Limit > 0, s.Source, []string{"set", "--to", s.Sink4.String(), "--up", fmt.Sprintf("%dB/s", t.Limit)}},
	} {
		if !one.on {
			continue
		}
		if err := b.Inhabit(one.from); err != nil {
			return err
		}
		if _, err := b.NetniceIn(ctx, one.from, one.args...); err != nil {
			return err
		}
	}
	return nil
}

func pause(b *bed.Bed) time.Duration { return b.Length(settle, settleQuick) }

func (f *Figures) datagrams(ctx context.Context, b *bed.Bed, s *routed.Site, tcp *testbed.Receiver, t Transfer, over time.Duration) error {
	at := netip.AddrPortFrom(s.Sink4, udpPort)
	rx, err := datagram.StartReceiver(s.Sink, at)
	if err != nil {
		return err
	}
	b.Defer(rx.Close)
	tx, err := datagram.StartSender(s.Source, datagram.SenderConfig{To: at, PayloadBytes: payload, Rate: offered, Remote: !t.Adapt && t.Limit == 0})
	if err != nil {
		return err
	}
	b.Defer(tx.Close)
	if err := tx.Start(); err != nil {
		return err
	}
	err = f.watch(ctx, b, s, tcp, t, over, func(from, to testbed.Instant) (float64, error) {
		a, err := rx.Arrived(from, to, 1)
		f.Arrived, f.Sent = a.Count, uint64(int64(a.Count)+max(a.Lost, 0))
		return float64(a.Count) * payload, err
	})
	if err != nil {
		return err
	}
	return f.countBySteps(func(to testbed.Instant) (datagram.Arrivals, error) { return rx.Arrived(f.from, to, 1) })
}

// countBySteps counts sent and lost datagrams in each step; arrivedBy returns the arrivals since the first step
// began.
func (f *Figures) countBySteps(arrivedBy func(to testbed.Instant) (datagram.Arrivals, error)) error {
	var before datagram.Arrivals
	for i := range f.Rates {
		a, err := arrivedBy(f.from.Add(time.Duration(i+1) * step))
		if err != nil {
			return err
		}
		lost := float64(a.Lost - before.Lost)
		f.SentBy = append(f.SentBy, float64(a.Count-before.Count)+lost)
		f.LostBy = append(f.LostBy, lost)
		before = a
	}
	return nil
}

func (f *Figures) segments(ctx context.Context, b *bed.Bed, s *routed.Site, tcp *testbed.Receiver, t Transfer, over time.Duration) error {
	tx, err := b.Sender(s.Source, testbed.SenderConfig{To: netip.AddrPortFrom(s.Sink4, testbed.DefaultPort).String(), Congestion: t.congestion()})
	if err != nil {
		return err
	}
	if _, err := tx.Start(); err != nil {
		return err
	}
	if err := testbed.Sleep(ctx, pause(b)); err != nil {
		return err
	}
	before, _, err := tx.Info()
	if err != nil || len(before) == 0 {
		return errors.Join(err, errors.New("no connection"))
	}
	err = f.watch(ctx, b, s, tcp, t, over, func(from, to testbed.Instant) (float64, error) {
		return tcp.Goodput(testbed.DefaultPort, from, to) * to.Sub(from).Seconds(), nil
	})
	if err != nil {
		return err
	}
	after, _, err := tx.Info()
	if err != nil || len(after) == 0 {
		return errors.Join(err, errors.New("no connection"))
	}
	f.Sent = uint64(after[0].DataSegments - before[0].DataSegments)
	f.Again = int(after[0].Retransmits) - int(before[0].Retransmits)
	f.Arrived = uint64(f.BitsPerSec / 8 * f.Seconds / segment)
	return nil
}

// watch waits, and measures the traffic that arrives meanwhile.
func (f *Figures) watch(ctx context.Context, b *bed.Bed, s *routed.Site, tcp *testbed.Receiver, t Transfer, over time.Duration, payloadOf func(from, to testbed.Instant) (float64, error)) error {
	if t.UDP { // TCP has waited
		if err := testbed.Sleep(ctx, pause(b)); err != nil {
			return err
		}
	}
	dropped, err := s.Dropped()
	if err != nil {
		return err
	}
	from := testbed.Now()
	f.from = from
	if err := testbed.Sleep(ctx, over); err != nil {
		return err
	}
	to := testbed.Now()
	if err := testbed.Sleep(ctx, 200*time.Millisecond); err != nil { // for the last sample
		return err
	}
	after, err := s.Dropped()
	if err != nil {
		return err
	}
	f.Dropped, f.Seconds = after-dropped, to.Sub(from).Seconds()
	for at := from; at.Add(step) <= to; at = at.Add(step) {
		bytes, err := payloadOf(at, at.Add(step))
		if err != nil {
			return err
		}
		f.Rates = append(f.Rates, bytes*8/step.Seconds())
		if t.Beside {
			f.BesideRates = append(f.BesideRates, tcp.Goodput(testbed.DefaultPort+1, at, at.Add(step))*8)
		}
	}
	bytes, err := payloadOf(from, to)
	if err != nil {
		return err
	}
	f.BitsPerSec = bytes * 8 / f.Seconds
	if t.Beside {
		f.BesideBits = tcp.Goodput(testbed.DefaultPort+1, from, to) * 8
	}
	return nil
}

// Compare returns the time and the packets that the second of two transfers takes, as parts of the first's, for the
// same file.
func Compare(a, b Figures) string {
	for what, f := range map[string]Figures{"the first": a, "the second": b} {
		if f.BitsPerSec < 1 {
			return "the same file: of " + what + " transfer nothing arrived, which tells no time"
		}
	}
	perByte := func(f Figures) float64 { return float64(f.Sent) / (f.BitsPerSec * f.Seconds) }
	return fmt.Sprintf("the same file: %.3f of the time, %.3f of the packets", a.BitsPerSec/b.BitsPerSec, perByte(b)/perByte(a))
}
