// Package reserve has up to 50 programs with guarantees or reservations of 95% of a link. Eight programs of 64
// connections each and a flood of datagrams compete with them. It measures, second by second, how much of its promise
// each program gets.
package reserve

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/datagram"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

const (
	firstPort  = 6000
	otherPort  = 7000
	floodPort  = 7100
	aggressors = 8
	each       = 64   // connections of one program
	promised   = 0.95 // part of the link
	settle     = 6 * time.Second
	ipFactor   = 1500.0 / 1448
	period     = 20 * time.Millisecond
)

// cell is a measurement.
type cell struct {
	rate     uint64 // rate of the link, bytes/s
	programs int
	slices   bool // reservations without extra; else guarantees
}

func (c cell) name() string {
	how := "--min"
	if c.slices {
		how = "reserve"
	}
	return fmt.Sprintf("%gMB/s, %d with %s", float64(c.rate)/1e6, c.programs, how)
}

type figures struct {
	Name     string  `json:"name"`
	Rate     uint64  `json:"link_bytes_per_sec"`
	Programs int     `json:"programs"`
	Slices   bool    `json:"reservations"`
	Least    float64 `json:"least_over_promised_in_a_second"`
	Most     float64 `json:"most_over_promised_in_a_second"`
	Mean     float64 `json:"over_promised"`
	Others   float64 `json:"others_tcp_over_link"`
	All      float64 `json:"all_over_link"`
	Below    int     `json:"seconds_below_0_99"`
	Seconds  int     `json:"program_seconds"`
}

func run(ctx context.Context, b *bed.Bed) error {
	var all []figures
	b.Printf("%d programs of %d connections and a flood of UDP beside; of what is promised: in a second least and most, in all\n", aggressors, each)
	b.Printf("%-34s %8s %8s %8s %12s %10s %10s\n", "", "least", "most", "in all", "below 0.99", "others", "all")
	for _, rate := range []uint64{12_500_000, 125_000_000} {
		for _, programs := range []int{1, 10, 50} {
			for _, slices := range []bool{false, true} {
				f, err := cell{rate, programs, slices}.measure(ctx, b)
				if err != nil {
					return fmt.Errorf("%s: %w", cell{rate, programs, slices}.name(), err)
				}
				all = append(all, f)
				b.Printf("%-34s %8.4f %8.4f %8.4f %5d of %3d %10.4f %10.4f\n", f.Name, f.Least, f.Most, f.Mean, f.Below, f.Seconds, f.Others, f.All)
				if b.Quick {
					return b.Write(all)
				}
			}
		}
	}
	return b.Write(all)
}

func (c cell) measure(ctx context.Context, b *bed.Bed) (f figures, err error) {
	f = figures{Name: c.name(), Rate: c.rate, Programs: c.programs, Slices: c.slices, Least: math.Inf(1)}
	if err := b.Up(ctx); err != nil {
		return f, err
	}
	defer func() {
		if down := b.Down(ctx); err == nil {
			err = down
		}
	}()
	pair, err := testbed.NewPairInOrder()
	if err != nil {
		return f, err
	}
	defer pair.Close()
	rx, senders, err := c.populate(pair)
	if rx != nil {
		defer rx.Close()
	}
	for _, tx := range senders {
		defer tx.Close()
	}
	if err != nil {
		return f, err
	}
	flood, err := datagram.StartSender(pair.A, datagram.SenderConfig{To: netip.AddrPortFrom(pair.B4, floodPort), PayloadBytes: 1400})
	if err != nil {
		return f, err
	}
	defer flood.Close()
	if err := c.promise(ctx, b, pair, senders[:c.programs]); err != nil {
		return f, err
	}
	for _, tx := range senders {
		if _, err := tx.Start(); err != nil {
			return f, err
		}
	}
	if err := flood.Start(); err != nil {
		return f, err
	}
	if err := testbed.Sleep(ctx, b.Length(settle, 2*time.Second)); err != nil {
		return f, err
	}
	before, begin, err := sent(ctx, b)
	if err != nil {
		return f, err
	}
	length := b.Length(10*time.Second, 2*time.Second)
	if err := testbed.Sleep(ctx, length); err != nil {
		return f, err
	}
	after, end, err := sent(ctx, b)
	if err != nil {
		return f, err
	}
	if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil { // for the last sample
		return f, err
	}
	f.All = float64(after-before) / end.Sub(begin).Seconds() / float64(c.rate)
	c.compute(&f, rx, begin, int(length.Seconds()))
	return f, nil
}

// sent returns the bytes that netnice has charged to the link.
func sent(ctx context.Context, b *bed.Bed) (bytes uint64, at testbed.Instant, err error) {
	list, err := b.Client.Nodes(ctx)
	if err != nil {
		return 0, 0, err
	}
	at = testbed.Now()
	for _, n := range list.Nodes {
		if n.Subject.Kind == "link" {
			return n.Up.Bytes, at, nil
		}
	}
	return 0, 0, fmt.Errorf("there is no link in %+v", list.Nodes)
}

// populate starts a receiver and the programs: those with a promise first.
func (c cell) populate(pair *testbed.Pair) (*testbed.Receiver, []*testbed.Sender, error) {
	cfg := testbed.ReceiverConfig{Interval: 20 * time.Millisecond}
	var to []uint16
	for i := range c.programs {
		to = append(to, firstPort+uint16(i))
	}
	for i := range aggressors {
		to = append(to, otherPort+uint16(i))
	}
	for _, port := range to {
		cfg.Ports = append(cfg.Ports, testbed.Port{Number: port})
	}
	rx, err := testbed.StartReceiver(pair.B, cfg)
	if err != nil {
		return nil, nil, err
	}
	var senders []*testbed.Sender
	for i, port := range to {
		connections := 1
		if i >= c.programs {
			connections = each
		}
		tx, err := testbed.StartSender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, port).String(), Connections: connections, Congestion: "cubic"})
		if err != nil {
			return rx, senders, err
		}
		senders = append(senders, tx)
	}
	for _, tx := range senders {
		if err := tx.Connect(); err != nil {
			return rx, senders, err
		}
	}
	return rx, senders, nil
}

// part returns the promise of each program, as a part of the link.
func (c cell) part() float64 { return promised / float64(c.programs) }

func (c cell) promise(ctx context.Context, b *bed.Bed, pair *testbed.Pair, senders []*testbed.Sender) error {
	if _, err := b.NetniceIn(ctx, pair.A, "link", testbed.Device, "--up", fmt.Sprintf("%dB/s", c.rate)); err != nil {
		return err
	}
	for _, tx := range senders {
		var err error
		if c.slices {
			err = b.Reserve(ctx, pair.A, tx.PID(), period, time.Duration(c.part()*float64(period)), false)
		} else {
			_, err = b.Netnice(ctx, "set", "--pid", fmt.Sprint(tx.PID()), "--min", fmt.Sprintf("%dB/s", uint64(c.part()*float64(c.rate))))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c cell) compute(f *figures, rx *testbed.Receiver, begin testbed.Instant, seconds int) {
	want := c.part() * float64(c.rate)
	for i := range c.programs {
		port := firstPort + uint16(i)
		for s := range seconds {
			from := begin.Add(time.Duration(s) * time.Second)
			got := rx.Goodput(port, from, from.Add(time.Second)) * ipFactor / want
			f.Least, f.Most = min(f.Least, got), max(f.Most, got)
			f.Seconds++
			if got < 0.99 {
				f.Below++
			}
		}
		f.Mean += rx.Goodput(port, begin, begin.Add(time.Duration(seconds)*time.Second)) * ipFactor / want / float64(c.programs)
	}
	for i := range aggressors {
		f.Others += rx.Goodput(otherPort+uint16(i), begin, begin.Add(time.Duration(seconds)*time.Second)) * ipFactor / float64(c.rate)
	}
}
