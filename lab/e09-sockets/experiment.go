// Package e09 re-runs nlimit's Figure 5: several sockets, each limited
// to 3 KB/s by its program's own setsockopt. At two packets a second per socket
// the sum is made of packets; the question is whether each socket is right. The sockets are the first ones with a limit
// after netnice is up, and once more others beside one that has had a limit before.
package e09

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/flows"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	sockets = 8
	limit   = 3000 // bytes/s of each
)

// The sockets of a run are the first ones with a limit, or there was one before them.
const (
	first = "first sockets with a limit"
	later = "beside one from before"
)

type figures struct {
	Sockets  string      `json:"sockets"`
	Means    []float64   `json:"mean_over_limit"` // per socket, from its beginning on
	Begin    float64     `json:"first_second_over_limits"`
	Sum      stat.Spread `json:"sum_per_second"`
	Steady   stat.Spread `json:"sum_per_second_after_6s"`
	SumRatio float64     `json:"sum_over_limits"`
	Jain     float64     `json:"jain"`
	Packet   int         `json:"largest_packet_bytes"`
	Series   [][]float64 `json:"series_per_second"` // per socket
}

func run(ctx context.Context, b *bed.Bed) error {
	if err := b.Up(ctx); err != nil {
		return err
	}
	var list []figures
	for _, which := range []string{first, later} {
		all, packets, err := traffic(ctx, b, which == later)
		if err != nil {
			return fmt.Errorf("%s: %w", which, err)
		}
		f := compute(packets, all)
		f.Sockets = which
		list = append(list, f)
		b.Printf("%d sockets of 3 KB/s, %s: each %.4f..%.4f of its limit, sum %.4f, Jain %.5f\nfirst second %.2f of the limits, sum per second %.1f..%.1f KB/s, from the 7th second on %.1f..%.1f; a packet is %d bytes\n",
			sockets, which, testbed.Percentile(f.Means, 0), testbed.Percentile(f.Means, 100), f.SumRatio, f.Jain,
			f.Begin, f.Sum.Min/1e3, f.Sum.Max/1e3, f.Steady.Min/1e3, f.Steady.Max/1e3, f.Packet)
		if which == later {
			if err := draw(b, all); err != nil {
				return err
			}
		}
	}
	b.Printf("paper: each approximately right and bursty, the sum very bursty (a figure without numbers)\n")
	return b.Write(list)
}

// traffic lets sockets of 3 KB/s send, beside an idle one that had a limit before them or without.
func traffic(ctx context.Context, b *bed.Bed, beside bool) (f flows.Flows, packets []capture.Packet, err error) {
	length := b.Length(40*time.Second, 10*time.Second)
	pair, err := b.Pair()
	if err != nil {
		return f, nil, err
	}
	c, err := b.Captured(pair.B)
	if err != nil {
		return f, nil, err
	}
	to := netip.AddrPortFrom(pair.B4, testbed.DefaultPort)
	if beside {
		fd, err := bed.Dial(pair.A, to, limit)
		if err != nil {
			return f, nil, err
		}
		b.Defer(func() error { return bed.Reset(fd) })
		if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil {
			return f, nil, err
		}
	}
	begin := testbed.Now()
	var ports []uint16
	var open []int
	for range sockets {
		fd, err := bed.Dial(pair.A, to, limit)
		if err != nil {
			return f, nil, err
		}
		open = append(open, fd)
		port, err := bed.LocalPort(fd)
		if err != nil {
			return f, nil, err
		}
		ports = append(ports, port)
		go bed.Fill(fd)
	}
	err = testbed.Sleep(ctx, length)
	for _, fd := range open {
		err = errors.Join(err, bed.Reset(fd))
	}
	if err != nil {
		return f, nil, err
	}
	packets, err = c.Stop()
	return flows.Of(packets, ports, begin, begin.Add(length)), packets, err
}

func compute(packets []capture.Packet, all flows.Flows) figures {
	f := figures{Series: all.Each, Sum: stat.Of(all.Sum), Steady: stat.Of(all.Sum[6:])}
	for _, mean := range all.Means() {
		f.Means = append(f.Means, mean/limit)
	}
	f.Begin = all.Sum[0] / (limit * sockets)
	f.Jain = testbed.Jain(f.Means)
	f.SumRatio = f.Sum.Mean / (limit * sockets)
	for _, p := range packets {
		f.Packet = max(f.Packet, p.Bytes)
	}
	return f
}

func draw(b *bed.Bed, all flows.Flows) error {
	return b.Draw("", chart.Chart{
		Title: "8 sockets of 3 KB/s each", X: "seconds", Y: "KB/s (IP, per second)", YMax: 32,
		Curves: all.Curves("socket")[:4], // the others look the same
		Levels: map[string]float64{"8 x 3 KB/s": sockets * limit / 1e3},
	})
}
