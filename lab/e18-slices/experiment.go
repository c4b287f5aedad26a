// Package e18 re-runs Nemesis' Figure 4 and the measurement behind it. One TCP connection has a reservation
// of 2.4 and of 3 ms in each 50 ms of a link of 10 Mbit/s, without more. The experiment captures it packet by
// packet. It also measures the throughput against the slice, in periods of 200 ms.
package e18

import (
	"context"
	"flag"
	"fmt"
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
	line  = 1_250_000 // bytes/s
	large = 1000      // bytes: a packet with data
	begun = 2 * time.Second
)

// pattern is the result for one reservation.
type pattern struct {
	Period  time.Duration `json:"period_ns"`
	Slice   time.Duration `json:"slice_ns"`
	Bursts  map[int]int   `json:"bursts"` // number of bursts by their packets
	EveryMS stat.Spread   `json:"between_their_beginnings_ms"`
	Rate    float64       `json:"over_reserved"`
	packets []capture.Packet
}

type figures struct {
	Patterns []pattern `json:"figure_4"`
	Slices   []pattern `json:"by_slice"`
}

func run(ctx context.Context, b *bed.Bed) error {
	pair, err := b.LinkedPair(ctx, "10mbit")
	if err != nil {
		return err
	}
	if _, err := b.Receiver(pair.B, testbed.ReceiverConfig{}); err != nil {
		return err
	}
	var f figures
	b.Printf("one connection, link of 10 Mbit/s, no extra\n")
	for _, slice := range []time.Duration{2400 * time.Microsecond, 3 * time.Millisecond} {
		p, err := look(ctx, b, pair, 50*time.Millisecond, slice, b.Length(10*time.Second, 2*time.Second))
		if err != nil {
			return err
		}
		f.Patterns = append(f.Patterns, p)
		b.Printf("%v of each %v: bursts of packets %v, beginning every %.2f ms (%.2f..%.2f), %.4f of what is reserved\n",
			p.Slice, p.Period, p.Bursts, p.EveryMS.Mean, p.EveryMS.Min, p.EveryMS.Max, p.Rate)
	}
	b.Printf("paper: two packets, a pause of almost 50 ms; two and three mixed\n\n")
	for _, packets := range []int{1, 2, 4, 6, 8, 16, 32, 64, 120} {
		p, err := look(ctx, b, pair, 200*time.Millisecond, time.Duration(packets)*1200*time.Microsecond, b.Length(8*time.Second, 2*time.Second))
		if err != nil {
			return err
		}
		f.Slices = append(f.Slices, p)
		b.Printf("%8v of each %v: %.4f of what is reserved\n", p.Slice, p.Period, p.Rate)
		if b.Quick && packets == 4 {
			break
		}
	}
	b.Printf("paper: almost no discrepancy up to 9.6 ms, then very varying (the receiver's window)\n")
	if err := draw(b, f); err != nil {
		return err
	}
	return b.Write(f)
}

func look(ctx context.Context, b *bed.Bed, pair *testbed.Pair, period, slice, length time.Duration) (p pattern, err error) {
	p = pattern{Period: period, Slice: slice, Bursts: map[int]int{}}
	tx, err := testbed.StartSender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String(), Congestion: "cubic"})
	if err != nil {
		return p, err
	}
	defer tx.Close()
	if err := b.Reserve(ctx, pair.A, tx.PID(), period, slice, false); err != nil {
		return p, err
	}
	if _, err := tx.Start(); err != nil {
		return p, err
	}
	if err := testbed.Sleep(ctx, begun); err != nil {
		return p, err
	}
	c, err := capture.Start(pair.B)
	if err != nil {
		return p, err
	}
	if err := testbed.Sleep(ctx, length); err != nil {
		return p, err
	}
	packets, err := c.Stop()
	if err != nil {
		return p, err
	}
	var last testbed.Instant
	var begins []testbed.Instant
	count, bytes := 0, 0
	for _, q := range packets {
		if q.To != testbed.DefaultPort || q.Bytes < large {
			continue
		}
		p.packets = append(p.packets, q)
		if count > 0 && q.T.Sub(last) > period/4 {
			p.Bursts[count]++
			count = 0
		}
		if count == 0 {
			begins = append(begins, q.T)
		}
		count, last = count+1, q.T
	}
	if len(begins) < 3 {
		return p, fmt.Errorf("%d bursts were seen in %v", len(begins), length)
	}
	// The rate covers the first burst to the last one, without the last.
	first := begins[0]
	for _, q := range p.packets {
		if q.T >= first && q.T < begins[len(begins)-1] {
			bytes += q.Bytes
		}
	}
	var every []float64
	for i := range begins[1:] {
		every = append(every, begins[i+1].Sub(begins[i]).Seconds()*1e3)
	}
	p.EveryMS = stat.Of(every)
	span := begins[len(begins)-1].Sub(first).Seconds()
	p.Rate = float64(bytes) / span / (line * slice.Seconds() / period.Seconds())
	_, err = tx.Stop()
	return p, err
}

func draw(b *bed.Bed, f figures) error {
	c := chart.Chart{Title: "Packets of a reservation of 2.4 and 3 ms in each 50 ms of 10 Mbit/s", X: "seconds", Y: "packets sent"}
	for _, p := range f.Patterns {
		curve := chart.Curve{Name: p.Slice.String()}
		for i, q := range p.packets {
			at := q.T.Sub(p.packets[0].T).Seconds()
			if at > 0.5 {
				break
			}
			curve.Points = append(curve.Points, chart.XY{X: at, Y: float64(i)}, chart.XY{X: at, Y: float64(i + 1)})
		}
		c.Curves = append(c.Curves, curve)
	}
	return b.Draw("", c)
}
