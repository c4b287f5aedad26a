// Package e12 re-runs nlimit's Table 1: the highest rates of three programs without any limit on them, on
// a machine with and without netnice. The programs are nsend (here the lab's sender, a static Go program), slurp (a
// download: curl from Python's http.server) and socket-test (here iperf3 with four connections).
package e12

import (
	"context"
	"flag"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

// program is one of the three, with the paper's figures in bytes per second.
type program struct {
	Name   string         `json:"program"`
	Paper  [2]float64     `json:"paper_without_and_with"`
	Result bed.Comparison `json:"ours"`
	once   func() (float64, error)
}

func run(ctx context.Context, b *bed.Bed) error {
	rounds := 8
	if b.Quick {
		rounds = 1
	}
	pair, err := b.Pair()
	if err != nil {
		return err
	}
	rx, err := b.Receiver(pair.B, testbed.ReceiverConfig{Interval: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	url, err := b.FileServer(ctx, pair.B, pair.B4, 1e9)
	if err != nil {
		return err
	}
	if err := b.IPerfServer(ctx, pair.B); err != nil {
		return err
	}
	to := netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String()
	change, err := b.Switcher(ctx)
	if err != nil {
		return err
	}
	programs := []program{
		{Name: "nsend", Paper: [2]float64{7049000, 2736000}, once: func() (float64, error) {
			return b.Bulk(ctx, pair.A, rx, testbed.SenderConfig{To: to}, time.Second)
		}},
		{Name: "slurp", Paper: [2]float64{6704000, 3970000}, once: func() (float64, error) {
			return bed.Curl(ctx, pair.A, url)
		}},
		{Name: "socket-test", Paper: [2]float64{3461000, 1966000}, once: func() (float64, error) {
			return bed.IPerf(ctx, pair.A, pair.B4, time.Second, 4)
		}},
	}
	for i := range programs {
		p := &programs[i]
		off, on, err := bed.Quads(ctx, rounds, change, bed.WithCPU(p.once))
		if err != nil {
			return err
		}
		p.Result = bed.CompareRuns(off, on)
		b.Printf("%-12s %s\n%-12s paper: %.2f -> %.2f MB/s, ratio %.2f\n", p.Name, p.Result,
			"", p.Paper[0]/1e6, p.Paper[1]/1e6, p.Paper[1]/p.Paper[0])
	}
	return b.Write(programs)
}
