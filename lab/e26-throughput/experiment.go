// Package e26 re-runs Nemesis' last measurement: the highest TCP rate over a link with the mechanism and
// without. The link is a line of 100 Mbit/s, of which the sender reserves half, or is as fast as the machine can.
package e26

import (
	"context"
	"flag"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/lab/internal/bed"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

type link struct {
	Name   string         `json:"link"`
	Result bed.Comparison `json:"ours"`
	rate   string
	pair   func() (*testbed.Pair, error)
}

func run(ctx context.Context, b *bed.Bed) error {
	rounds, length := 4, b.Length(4*time.Second, 2*time.Second)
	if b.Quick {
		rounds = 1
	}
	links := []link{
		{Name: "a line of 100 Mbit/s", rate: "99mbit", pair: func() (*testbed.Pair, error) {
			path := relay.RoundTrip(2 * time.Millisecond)
			path.AtoB.Rate = 12_500_000
			p, err := testbed.NewDistantPair(path)
			if err == nil {
				b.Defer(p.Close)
			}
			return p, err
		}},
		{Name: "veth", rate: "100gbit", pair: b.Pair},
	}
	for i := range links {
		l := &links[i]
		pair, err := l.pair()
		if err != nil {
			return err
		}
		rx, err := b.Receiver(pair.B, testbed.ReceiverConfig{Interval: 20 * time.Millisecond})
		if err != nil {
			return err
		}
		if err := b.Inhabit(pair.A); err != nil {
			return err
		}
		var on bool
		change := func(up bool) error {
			if on = up; !up {
				return b.Down(ctx)
			}
			if err := b.Up(ctx); err != nil {
				return err
			}
			_, err := b.NetniceIn(ctx, pair.A, "link", testbed.Device, "--up", l.rate)
			return err
		}
		once := func() (float64, error) { return send(ctx, b, pair, rx, on, length) }
		without, with, err := bed.Quads(ctx, rounds, change, once)
		if err != nil {
			return err
		}
		l.Result = bed.Compare(without, with)
		b.Printf("%-22s %s\n", l.Name, l.Result)
	}
	b.Printf("paper: 58 Mbit/s with it, 81 on plain Linux: ratio 0.72\n")
	return b.Write(links)
}

// send returns the rate of one connection, bytes/s of payload. Half of the link is reserved if the link is limited.
func send(ctx context.Context, b *bed.Bed, pair *testbed.Pair, rx *testbed.Receiver, reserve bool, length time.Duration) (float64, error) {
	tx, err := testbed.StartSender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String(), Congestion: "cubic"})
	if err != nil {
		return 0, err
	}
	defer tx.Close()
	if reserve {
		if err := b.Reserve(ctx, pair.A, tx.PID(), 10*time.Millisecond, 5*time.Millisecond, true); err != nil {
			return 0, err
		}
	}
	begin, err := tx.Start()
	if err != nil {
		return 0, err
	}
	if err := testbed.Sleep(ctx, length); err != nil {
		return 0, err
	}
	end := testbed.Now()
	if err := testbed.Sleep(ctx, 60*time.Millisecond); err != nil { // for the last sample
		return 0, err
	}
	_, err = tx.Stop()
	return rx.Goodput(0, begin.Add(length/4), end), err
}
