// Package e24 re-runs tender's Figures 5 to 12: the arrival times of the packets of a program with n per cent
// of the processor in slots of 1 ms. Its writes have 1024 and 2048 bytes. The paper's machine just filled its 100
// Mbit/s at n = 100. This sender therefore calculates for each byte for as long as that took. A sender that does not
// calculate runs too, through a line: the data in a socket then hide the slots.
package e24

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/load"
)

const slot = load.Slot

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

type row struct {
	Line        string  `json:"line"` // "" = none
	Write       int     `json:"write_bytes"`
	N           int     `json:"n"`
	BytesPerSec float64 `json:"bytes_per_sec"` // IP bytes
	Packets     int     `json:"packets"`
	// Under100us is the part of the packets that arrived within 100 us of another. Slots concerns the packets that
	// arrived after half a slot or later. It holds the part of them that arrived after one slot, two, and so on,
	// rounded.
	Under100us float64         `json:"under_100us"`
	Slots      map[int]float64 `json:"slots"`
	// DelayedTime is the part of the time within such gaps. It is 1 - n/100 if the program stands still in its slots
	// and no buffer hides that.
	DelayedTime float64 `json:"delayed_time"`
	gaps        []float64
}

func run(ctx context.Context, b *bed.Bed) error {
	numbers := []int{100, 75, 50, 25, 10}
	if b.Quick {
		numbers = []int{100, 50, 25}
	}
	pair, _, err := b.Senders(ctx)
	if err != nil {
		return err
	}
	if err := capture.Segment(pair.A); err != nil {
		return err
	}
	if err := b.Inhabit(pair.A); err != nil {
		return err
	}
	to := netip.AddrPortFrom(pair.B4, testbed.DefaultPort)
	var rows []row
	b.Printf("%-8s %6s %5s %8s %10s  %10s  %-32s %12s\n", "line", "write", "n", "MB/s", "packets", "< 100 us", "gaps of 1, 2, 3 ... slots", "time in them")
	for _, c := range []struct {
		line  string
		write int
		each  time.Duration
	}{{"", 1024, load.PerByte}, {"", 2048, load.PerByte}, {"100mbit", 2048, 0}} {
		if c.line != "" {
			if _, err := b.NetniceIn(ctx, pair.A, "link", testbed.Device, "--up", c.line); err != nil {
				return err
			}
		}
		for _, n := range numbers {
			r, err := look(ctx, b, pair, to, n, c.write, c.each)
			if err != nil {
				return err
			}
			r.Line = c.line
			rows = append(rows, r)
			b.Printf("%-8s %6d %5d %8.2f %10d %10.1f%%  %-32s %11.1f%%\n", r.Line, r.Write, r.N, r.BytesPerSec/1e6, r.Packets, 100*r.Under100us, r.slots(), 100*r.DelayedTime)
		}
	}
	b.Printf("paper: gaps of whole slots, of which there are the more the smaller n is; of writes of 2048 bytes 20%% came within 100 us, of 1024 2%%\n")
	for _, write := range []int{1024, 2048} {
		c := chart.Chart{Title: fmt.Sprintf("When packets arrive, writes of %d bytes in slots of 1 ms", write), X: "ms since the one before", Y: "per cent of those after half a slot, up to there"}
		for _, r := range rows {
			if r.Line == "" && r.Write == write && r.N < 100 {
				c.Curves = append(c.Curves, chart.Curve{Name: fmt.Sprintf("n = %d", r.N), Points: r.distribution()})
			}
		}
		if err := b.Draw(strconv.Itoa(write), c); err != nil {
			return err
		}
	}
	return b.Write(rows)
}

// look starts a sender, gives it its slots, and captures the arriving packets.
func look(ctx context.Context, b *bed.Bed, pair *testbed.Pair, to netip.AddrPort, n, write int, each time.Duration) (r row, err error) {
	length := b.Length(10*time.Second, 3*time.Second)
	packets, err := load.Calculating{To: to, Write: write, PerByte: each}.Arrivals(ctx, b, pair, n, length)
	if err != nil {
		return r, err
	}
	r = row{Write: write, N: n, Slots: map[int]float64{}}
	var last testbed.Instant
	bytes, soon, late := 0, 0, 0
	for _, p := range packets {
		if r.Packets++; last != 0 {
			gap := p.T.Sub(last)
			switch {
			case gap < 100*time.Microsecond:
				soon++
			case gap >= slot/2:
				late++
				r.Slots[int(math.Round(float64(gap)/float64(slot)))]++
				r.DelayedTime += gap.Seconds() / length.Seconds()
				r.gaps = append(r.gaps, gap.Seconds()*1e3)
			}
		}
		last, bytes = p.T, bytes+p.Bytes
	}
	for k := range r.Slots {
		r.Slots[k] /= float64(late)
	}
	r.BytesPerSec, r.Under100us = float64(bytes)/length.Seconds(), float64(soon)/float64(max(r.Packets-1, 1))
	return r, nil
}

// slots returns the most frequent lengths of gaps.
func (r row) slots() string {
	var list []string
	for k := range 13 {
		if part := r.Slots[k]; part >= 0.02 {
			list = append(list, fmt.Sprintf("%d: %.0f%%", k, 100*part))
		}
	}
	return strings.Join(list, ", ")
}

// distribution returns, for a plot, the part of the gaps up to each length.
func (r row) distribution() (out []chart.XY) {
	gaps := slices.Sorted(slices.Values(r.gaps))
	const most = 12 // ms
	for i, gap := range gaps {
		if gap > most {
			break
		}
		if i%max(len(gaps)/500, 1) == 0 {
			out = append(out, chart.XY{X: gap, Y: 100 * float64(i+1) / float64(len(gaps))})
		}
	}
	return out
}
