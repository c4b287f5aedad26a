// Package e04 re-runs netnice's Figure 5. Servers run under fair-inetd in the third configuration: a
// total of 512 KB/s, telnet and login sessions at 32 KB/s, and the rest for FTP sessions. Three FTP downloads begin
// at t = 0, 10 and 20 s, and last 30 s each.
package e04

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/flows"
	"github.com/netnice/netnice/lab/internal/ftp"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	total    = 512 << 10 // bytes/s
	sessions = 3
)

// phase is a time in which the same sessions run.
type phase struct {
	Sessions []int         `json:"sessions"` // running sessions, from 1
	Seconds  [2]int        `json:"seconds"`
	Shares   []stat.Spread `json:"shares"` // share of the limit each second, of these sessions
	Sum      stat.Spread   `json:"sum_over_limit"`
	SettleMS int64         `json:"settled_after_ms"` // within 10% of the share, in windows of 0.2 s; -1 = never
}

type figures struct {
	Server string      `json:"server"`
	Phases []phase     `json:"phases"`
	Series [][]float64 `json:"series_per_second"`
}

func run(ctx context.Context, b *bed.Bed) error {
	apart := b.Length(10*time.Second, 3*time.Second)
	length := 3 * apart
	pair, err := b.Pair()
	if err != nil {
		return err
	}
	if err := b.UpIn(ctx, pair.A); err != nil { // a total limits ingress, too
		return err
	}
	// This is the paper's third configuration.
	server, err := ftp.New(b, `login stream tcp nowait root /bin/cat cat @32Kbyte/sec
telnet stream tcp nowait root /bin/cat cat @32Kbyte/sec
`)
	if err != nil {
		return err
	}
	if _, err := server.ByInetd(ctx, pair.A, "--total", "512Kbyte/sec"); err != nil {
		return err
	}
	c, err := b.Captured(pair.B)
	if err != nil {
		return err
	}
	begin := testbed.Now()
	for i := range sessions {
		if err := testbed.Sleep(ctx, begin.Add(time.Duration(i)*apart).Sub(testbed.Now())); err != nil {
			return err
		}
		_, err := b.Start(pair.B, "curl", "-sS", "-o", "/dev/null", "--max-time", fmt.Sprint(length.Seconds()), fmt.Sprintf("ftp://%s/%s", pair.A4, ftp.Path))
		if err != nil {
			return err
		}
	}
	end := begin.Add(length + (sessions-1)*apart)
	if err := testbed.Sleep(ctx, end.Sub(testbed.Now())+time.Second); err != nil {
		return err
	}
	packets, err := c.Stop()
	if err != nil {
		return err
	}
	ports := ftp.Downloads(packets)
	if len(ports) != sessions {
		return fmt.Errorf("%d downloads were seen, not %d", len(ports), sessions)
	}
	f := figures{Server: ftp.Name, Series: flows.Of(packets, ports, begin, end).Each}
	b.Printf("%s; parts of the limit of 512 KB/s, IP bytes received\n", ftp.Name)
	for i, running := range [][]int{{1}, {1, 2}, {1, 2, 3}, {2, 3}, {3}} {
		p := look(packets, ports, running, begin.Add(time.Duration(i)*apart), apart)
		p.Seconds = [2]int{int(float64(i) * apart.Seconds()), int(float64(i+1) * apart.Seconds())}
		f.Phases = append(f.Phases, p)
		b.Printf("%2d..%2d s, sessions %v: each ", p.Seconds[0], p.Seconds[1], running)
		for _, s := range p.Shares {
			b.Printf("%.3f (%.3f..%.3f) ", s.Mean, s.Min, s.Max)
		}
		b.Printf("sum %.3f (%.3f..%.3f), settled after %d ms\n", p.Sum.Mean, p.Sum.Min, p.Sum.Max, p.SettleMS)
	}
	b.Printf("paper: shares of 1, 1/2 and 1/3 (a figure), quick changes\n")
	if err := draw(b, f); err != nil {
		return err
	}
	return b.Write(f)
}

func look(packets []capture.Packet, ports []uint16, running []int, from testbed.Instant, length time.Duration) (p phase) {
	p.Sessions, p.SettleMS = running, -1
	want := 1 / float64(len(running))
	const settled, tolerance = time.Second, 0.1
	sum := make([]float64, int((length - settled).Seconds()))
	var windows [][]float64
	const window = 200 * time.Millisecond
	for _, n := range running {
		of := func(q capture.Packet) bool { return q.From == ports[n-1] }
		rates := capture.Rates(packets, from.Add(settled), from.Add(length), time.Second, of)
		for i := range rates {
			rates[i] /= total
			sum[i] += rates[i]
		}
		p.Shares = append(p.Shares, stat.Of(rates))
		windows = append(windows, capture.Rates(packets, from, from.Add(length), window, of))
	}
	p.Sum = stat.Of(sum)
	for i := range windows[0] {
		if !slices.ContainsFunc(windows, func(rates []float64) bool { return math.Abs(rates[i]/total-want) > tolerance*want }) {
			p.SettleMS = (time.Duration(i) * window).Milliseconds()
			break
		}
	}
	return p
}

func draw(b *bed.Bed, f figures) error {
	c := chart.Chart{
		Title: "Three FTP sessions under fair-inetd, 512 KB/s in all", X: "seconds", Y: "KB/s (IP, per second)",
		Levels: map[string]float64{"512 KB/s": total / 1e3, "1/2": total / 2e3, "1/3": total / 3e3},
	}
	for i, rates := range f.Series {
		curve := chart.Curve{Name: fmt.Sprintf("session %d", i+1)}
		for s, rate := range rates {
			curve.Points = append(curve.Points, chart.XY{X: float64(s) + 0.5, Y: rate / 1e3})
		}
		c.Curves = append(c.Curves, curve)
	}
	return b.Draw("", c)
}
