// Package e27 re-runs tender's Table 3: the number of packets of each size that arrive within 100 us of
// another, within 200 us, and later. The line has 100 Mbit/s, and the writes have 1024 and 2048 bytes. The table
// says that a short interval belongs to a short packet: a full one takes 121 us on that line. Here a token bucket of
// one packet is the line. One sender only copies, so the line stops it, and TCP fills its segments. Another one
// calculates for each byte, and sends the rest of a write at once. It runs in three ways: with a whole processor,
// with half of one in slots of 1 ms, and without the line.
package e27

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/load"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

const (
	line     = 100e6 / 8 // link bytes/s
	bucket   = 1600      // bytes: one packet
	queue    = 1 << 20   // bytes
	ethernet = 14        // bytes of a frame's header
	full     = 1500      // a longer frame holds a full segment
	// slower is the time that the calculating sender takes for each byte, so that the line does not stop it.
	slower  = load.PerByte * 5 / 4
	hundred = 100 * time.Microsecond
)

// setup is one of the cases.
type setup struct {
	line    bool
	write   int // bytes
	perByte time.Duration
	n       int // per cent of a processor, in slots
}

// counts holds numbers of packets by the time since the packet before: within 100 us, within 200 us, later.
type counts [3]int

type row struct {
	Line       bool `json:"line"` // a line of 100 Mbit/s
	Write      int  `json:"write_bytes"`
	Calculates bool `json:"calculates"`
	N          int  `json:"n"`
	// Sizes is the table: packets by their frame's size, in hundreds of bytes, rounded up.
	Sizes   map[int]counts `json:"by_100_bytes_and_interval"`
	Packets int            `json:"packets"`
	Soon    int            `json:"soon"` // within 100 us
	Full    int            `json:"full"` // frames with a full segment
	Short   int            `json:"short"`
	// FullSoon and ShortSoon are parts of Soon.
	FullSoon  int `json:"full_soon"`
	ShortSoon int `json:"short_soon"`

	gaps []float64 // us, up to 200
}

func run(ctx context.Context, b *bed.Bed) error {
	pair, _, err := b.Senders(ctx)
	if err != nil {
		return err
	}
	if err := capture.Segment(pair.A); err != nil {
		return err
	}
	if err := testbed.ShapeBucket(pair.A, line, bucket, queue); err != nil {
		return err
	}
	rows := make([]row, 0, 5)
	for _, s := range []setup{
		{true, 1024, 0, 100},
		{true, 2048, 0, 100},
		{true, 2048, slower, 100},
		{true, 2048, slower, 50},
		{false, 2048, slower, 100},
	} {
		if !s.line {
			if err := testbed.Unshape(pair.A); err != nil {
				return err
			}
		}
		sender := load.Calculating{To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort), Write: s.write, PerByte: s.perByte}
		packets, err := sender.Arrivals(ctx, b, pair, s.n, b.Length(8*time.Second, 2*time.Second))
		if err != nil {
			return err
		}
		r := count(s, packets)
		rows = append(rows, r)
		b.Printf("%s\n", r)
	}
	b.Printf("paper (n = 100): of writes of 1024 bytes 37 of 1633 packets came within 100 us, all of them short; of writes of 2048 bytes 510 of 2045, all short, 504 of 400 to 500 bytes; full ones within 200 us\n")
	c := chart.Chart{Title: "When packets arrive on 100 Mbit/s", X: "us since the one before", Y: "per cent of all, up to there"}
	for _, r := range rows {
		c.Curves = append(c.Curves, chart.Curve{Name: r.name(), Points: r.distribution()})
	}
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(rows)
}

// count makes the table of a case.
func count(s setup, packets []capture.Packet) row {
	r := row{Line: s.line, Write: s.write, Calculates: s.perByte > 0, N: s.n, Sizes: map[int]counts{}}
	for i := 1; i < len(packets); i++ {
		gap, frame := packets[i].T.Sub(packets[i-1].T), packets[i].Bytes+ethernet
		isFull, column := frame > full, min(max(int(gap/hundred), 0), 2)
		size := (frame + 99) / 100
		n := r.Sizes[size]
		n[column]++
		r.Sizes[size] = n
		r.Packets++
		if column < 2 {
			r.gaps = append(r.gaps, gap.Seconds()*1e6)
		}
		add(&r.Full, isFull)
		add(&r.Short, !isFull)
		add(&r.Soon, column == 0)
		add(&r.FullSoon, isFull && column == 0)
		add(&r.ShortSoon, !isFull && column == 0)
	}
	return r
}

func add(n *int, counts bool) {
	if counts {
		*n++
	}
}

func (r row) name() string {
	name := fmt.Sprintf("writes of %d, n = %d", r.Write, r.N)
	if r.Calculates {
		name += ", calculates"
	}
	if !r.Line {
		name += ", no line"
	}
	return name
}

func (r row) String() string {
	var sizes []string
	for _, size := range slices.Sorted(maps.Keys(r.Sizes)) {
		n := r.Sizes[size]
		sizes = append(sizes, fmt.Sprintf("%d: %d, %d, %d", size, n[0], n[1], n[2]))
	}
	return fmt.Sprintf("%-46s %6d packets, %.3f within 100 us (%d of %d full, %d of %d short ones)\n   by hundreds of bytes, within 100 us, within 200 us, later: %s",
		r.name(), r.Packets, float64(r.Soon)/float64(max(r.Packets, 1)), r.FullSoon, r.Full, r.ShortSoon, r.Short, strings.Join(sizes, "; "))
}

// distribution returns, for a plot, the part of all intervals up to each length, up to 200 us.
func (r row) distribution() (out []chart.XY) {
	slices.Sort(r.gaps)
	for i, gap := range r.gaps {
		if i%max(len(r.gaps)/500, 1) == 0 {
			out = append(out, chart.XY{X: gap, Y: 100 * float64(i+1) / float64(r.Packets)})
		}
	}
	return out
}
