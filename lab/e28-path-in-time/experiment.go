// Package e28 re-runs topp's Figures 6 and 7: a UDP transfer through a token bucket of 28 kbit/s beside
// a TCP connection of another host, in steps of 5 s. Figure 6 shows the sent and lost UDP packets, Figure 7 the
// rates of TCP and UDP. In the paper TCP takes more and more, until UDP is at its least rate most of the time. The
// transfer runs unchanged and adapted.
package e28

import (
	"context"
	"flag"
	"time"

	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/narrow"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

func run(ctx context.Context, b *bed.Bed) error {
	found, err := narrow.Run(ctx, b, b.Length(240*time.Second, 40*time.Second),
		narrow.Transfer{Name: "as it is", UDP: true, Beside: true},
		narrow.Transfer{Name: "adapt", UDP: true, Beside: true, Adapt: true})
	if err != nil {
		return err
	}
	b.Printf("paper (adapted): the line of what is lost is below that of what is sent, and both rise and fall; TCP is above UDP, which is at its least rate most of the time. 2,736,340 bytes took 1811 s: 12.1 kbit/s; ours would take %.0f s\n",
		2_736_340*8/max(found[1].BitsPerSec, 1))
	sent := chart.Chart{Title: "UDP through 28 kbit/s beside TCP, adapted", X: "s", Y: "datagrams in 5 s", Curves: []chart.Curve{
		narrow.Curve("sent", found[1].SentBy, 1), narrow.Curve("lost", found[1].LostBy, 1),
	}}
	if err := b.Draw("sent", sent); err != nil {
		return err
	}
	rates := chart.Chart{Title: "What UDP and TCP have of 28 kbit/s", X: "s", Y: "kbit/s that arrive"}
	for _, f := range found {
		rates.Curves = append(rates.Curves, narrow.Curve("TCP beside UDP "+f.Name, f.BesideRates, 1e-3), narrow.Curve("UDP "+f.Name, f.Rates, 1e-3))
	}
	if err := b.Draw("rates", rates); err != nil {
		return err
	}
	return b.Write(found)
}
