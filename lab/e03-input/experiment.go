// Package e03 re-runs netnice's Figure 4: a download runs for 10 s without a limit. Then a command from
// outside limits its receiver to 512 KB/s. For comparison it runs Linux's own means, an ifb with HTB and a policer,
// and no limit. As in the paper, it counts packets on the wire, at the sender's device. The data that the receiver
// has in order, round trips and retransmits come from the sender's TCP.
package e03

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/change"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/police"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	only := flags.String("only", "", "run only the downloads whose name matches this `REGEXP`, such as 'curl'")
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		match, err := regexp.Compile(*only)
		if err != nil {
			return fmt.Errorf("-only: %w", err)
		}
		return run(ctx, b, match)
	})
}

const (
	limit    = 512 << 10 // bytes/s
	mtu      = 1500
	payload  = 1448     // bytes of a full packet
	slow     = 10e6 / 8 // links, bytes/s
	fast     = 1e9 / 8
	limitAt  = 10      // s, in the plot
	fileSize = 4 << 30 // no download gets to its end
)

// download is one download of the experiment.
type download struct {
	program, limiter, link string
	rate                   uint64 // rate of the link, bytes/s
	free, limited          time.Duration
	// another says that another limit on ingress exists already: the first one waits for the kernel's verification
	// of programs.
	another bool
}

// figures holds the figures of one download.
type figures struct {
	Link    string `json:"link"`
	Program string `json:"program"`
	Limiter string `json:"limiter"`
	Another bool   `json:"another_limit_before"`
	change.Figures
	// InOrder is the rate that the receiver acknowledged from 1 s after the command's end on, as IP bytes of full
	// packets, over the limit.
	InOrder     float64     `json:"in_order_over_limit"`
	RTT         stat.Spread `json:"smoothed_round_trip_ms"` // in the time of InOrder
	Retransmits uint32      `json:"retransmits"`            // since the command
}

func run(ctx context.Context, b *bed.Bed, only *regexp.Regexp) error {
	long, short := b.Length(10*time.Second, 2*time.Second), b.Length(3*time.Second, 2*time.Second)
	after, shortAfter := b.Length(7*time.Second, 4*time.Second), b.Length(5*time.Second, 4*time.Second)
	downloads := []download{
		{"iperf3", "netnice", "10mbit", slow, long, after, false},
		{"curl", "netnice", "10mbit", slow, long, after, true},
		{"iperf3", "none", "10mbit", slow, short, shortAfter, false},
		{"iperf3", "ifb", "10mbit", slow, short, shortAfter, false},
		{"iperf3", "police", "10mbit", slow, short, shortAfter, false},
		{"iperf3", "netnice", "1gbit", fast, short, shortAfter, false},
		{"iperf3", "ifb", "1gbit", fast, short, shortAfter, false},
		{"iperf3", "police", "1gbit", fast, short, shortAfter, false},
	}
	var all []figures
	curves := make(map[string][]chart.Curve)
	for _, d := range downloads {
		if !only.MatchString(d.link + " " + d.program + " " + d.limiter) {
			continue
		}
		f, err := d.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", d.program, d.limiter, err)
		}
		all = append(all, f)
		b.Printf("%-8s %-6s %-8s %s; in order %.4f of the limit, round trip %.1f ms (%.1f..%.1f), %d retransmits\n",
			f.Link, f.Program, f.Limiter, f.Figures, f.InOrder, f.RTT.Median, f.RTT.Min, f.RTT.Max, f.Retransmits)
		if d.limiter != "none" {
			curves[f.Link] = append(curves[f.Link], f.Curve(d.program+", "+d.limiter, limitAt))
		}
	}
	b.Printf("paper: drops at once from the link's rate to 512 KB/s, noisier than sending (a figure without numbers)\n")
	for link, c := range curves {
		if err := b.Draw(link, chart.Chart{
			Title: "A download limited to 512 KB/s at its receiver, link of " + link,
			X:     "seconds", Y: "MB/s on the wire (IP, per 100 ms)", YMax: 2.5, Curves: c,
			Levels: map[string]float64{"512 KB/s": limit / 1e6},
		}); err != nil {
			return err
		}
	}
	return b.Write(all)
}

func (d download) run(ctx context.Context, b *bed.Bed) (f figures, err error) {
	pair, err := b.ShapedPair(testbed.ShapeTBF, d.rate)
	if err != nil {
		return f, err
	}
	limiter, err := d.prepare(ctx, b, pair.B)
	if err != nil {
		return f, err
	}
	c, err := capture.StartSent(pair.A)
	if err != nil {
		return f, err
	}
	rx, err := d.start(ctx, b, pair, limiter.cgroup)
	if err != nil {
		return f, err
	}
	w := change.When{Begin: testbed.Now()}
	if err := testbed.Sleep(ctx, d.free); err != nil {
		return f, err
	}
	before, err := bulk(pair.A)
	if err != nil {
		return f, err
	}
	w.At = testbed.Now()
	if err := limiter.begin(rx.Process.Pid); err != nil {
		return f, err
	}
	w.Done = testbed.Now()
	tcp, err := watch(ctx, pair.A, w.Steady(), w.Done.Add(d.limited))
	if err != nil {
		return f, err
	}
	w.End = testbed.Now()
	packets, err := c.Stop()
	if err != nil {
		return f, err
	}
	f = figures{Link: d.link, Program: d.program, Limiter: d.limiter, Another: d.another, Figures: change.Of(packets, w, limit)}
	f.InOrder = tcp.inOrder * mtu / payload / limit
	f.RTT, f.Retransmits = stat.Of(tcp.trips), tcp.last.Retransmits-before.Retransmits
	return f, bed.Kill(rx)
}

// limiter is a limiter that is ready to begin.
type limiter struct {
	cgroup string // cgroup in which the receiver has to be, "" = any
	begin  func(pid int) error
}

// prepare does all the work that is possible before the limit begins.
func (d download) prepare(ctx context.Context, b *bed.Bed, n *testbed.NetNS) (l limiter, err error) {
	switch d.limiter {
	case "netnice":
		if err := b.Down(ctx); err != nil { // it was in another namespace
			return l, err
		}
		if err := b.UpIn(ctx, n); err != nil {
			return l, err
		}
		if d.another {
			other, err := b.Start(n, "sleep", "infinity")
			if err != nil {
				return l, err
			}
			if err := b.LimitDownPID(ctx, other.Process.Pid, limit); err != nil {
				return l, err
			}
		}
		l.begin = func(pid int) error { return b.LimitDownPID(ctx, pid, limit) }
	case "ifb":
		l.begin = func(int) error { return testbed.ShapeIngressHTB(n, limit) }
	case "police":
		p, err := police.New()
		if err != nil {
			return l, err
		}
		b.Defer(p.Close)
		l.cgroup, l.begin = p.Dir(), func(int) error { return p.Begin(limit) }
	default:
		l.begin = func(int) error { return nil }
	}
	return l, nil
}

// start starts the download and returns its receiver.
func (d download) start(ctx context.Context, b *bed.Bed, pair *testbed.Pair, cgroup string) (*exec.Cmd, error) {
	if d.program == "curl" {
		url, err := b.FileServer(ctx, pair.A, pair.A4, fileSize)
		if err != nil {
			return nil, err
		}
		return b.StartInCgroup(pair.B, cgroup, "curl", "-sS", "-o", "/dev/null", url)
	}
	if err := b.IPerfServer(ctx, pair.A); err != nil {
		return nil, err
	}
	const longer = 30 // s, margin for the command; it is killed after the measurement
	seconds := strconv.Itoa(int((d.free + d.limited).Seconds()) + longer)
	return b.StartInCgroup(pair.B, cgroup, "iperf3", "--client", pair.A4.String(), "--reverse", "--time", seconds)
}
