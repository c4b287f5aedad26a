// Package e09 re-runs nlimit's Figure 5: several sockets, each limited
// to 3 KB/s by its program's own setsockopt. At two packets a second per socket
// the sum is made of packets; the question is whether each socket is right.
package e09

import (
	"context"
	"flag"
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

type figures struct {
	Sockets  []float64   `json:"mean_over_limit"` // per socket
	Sum      stat.Spread `json:"sum_per_second"`
	Steady   stat.Spread `json:"sum_per_second_after_6s"`
	SumRatio float64     `json:"sum_over_limits"`
	Jain     float64     `json:"jain"`
	Packet   int         `json:"largest_packet_bytes"`
	Series   [][]float64 `json:"series_per_second"` // per socket
}

func run(ctx context.Context, b *bed.Bed) error {
	length := b.Length(40*time.Second, 10*time.Second)
	if err := b.Up(ctx); err != nil {
		return err
	}
	pair, err := b.Pair()
	if err != nil {
		return err
	}
	c, err := b.Captured(pair.B)
	if err != nil {
		return err
	}
	var ports []uint16
	for range sockets {
		fd, err := bed.Dial(pair.A, netip.AddrPortFrom(pair.B4, testbed.DefaultPort), limit)
		if err != nil {
			return err
		}
		b.Defer(func() error { return bed.Reset(fd) })
		port, err := bed.LocalPort(fd)
		if err != nil {
			return err
		}
		ports = append(ports, port)
		go bed.Fill(fd)
	}
	begin := testbed.Now().Add(time.Second)
	if err := testbed.Sleep(ctx, length+time.Second); err != nil {
		return err
	}
	packets, err := c.Stop()
	if err != nil {
		return err
	}
	all := flows.Of(packets, ports, begin, begin.Add(length))
	f := compute(packets, all)
	b.Printf("%d sockets of 3 KB/s: each %.4f..%.4f of its limit, sum %.4f, Jain %.5f\nsum per second %.1f..%.1f KB/s, from the 7th second on %.1f..%.1f; a packet is %d bytes\n",
		sockets, testbed.Percentile(f.Sockets, 0), testbed.Percentile(f.Sockets, 100), f.SumRatio, f.Jain,
		f.Sum.Min/1e3, f.Sum.Max/1e3, f.Steady.Min/1e3, f.Steady.Max/1e3, f.Packet)
	b.Printf("paper: each approximately right and bursty, the sum very bursty (a figure without numbers)\n")
	if err := draw(b, all); err != nil {
		return err
	}
	return b.Write(f)
}

func compute(packets []capture.Packet, all flows.Flows) figures {
	f := figures{Series: all.Each, Sum: stat.Of(all.Sum), Steady: stat.Of(all.Sum[5:])}
	for _, mean := range all.Means() {
		f.Sockets = append(f.Sockets, mean/limit)
	}
	f.Jain = testbed.Jain(f.Sockets)
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
