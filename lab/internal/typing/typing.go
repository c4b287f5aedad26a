// Package typing runs netnice's experiments with telnet (Figures 6 to 8). A person types a byte every 100 ms and
// waits for its echo, while two others download by FTP over the same 10 Mbit/s. They download from a server by
// itself, and from one under fair-inetd with a total of 512 KB/s. The experiments differ in the places of the
// stations.
package typing

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/echo"
	"github.com/netnice/netnice/lab/internal/ftp"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Slow is the rate of the segment that all share, in link bytes/s.
const Slow = 10e6 / 8

const (
	limit  = 512 << 10 // bytes/s, of both downloads together
	half   = limit / 2 // with it a packet for which a byte waits is on its way half as often
	pause  = 100 * time.Millisecond
	settle = 600 * time.Millisecond // time that the downloads run before
)

// Site assigns the roles to the stations.
type Site struct {
	Files, Echo *testbed.NetNS // servers; they may be the same
	FilesAt     netip.Addr
	EchoAt      netip.Addr
	Typist      *testbed.NetNS
	Downloaders []*testbed.NetNS
}

// measured holds the measurements of one run.
type measured struct {
	trips []float64 // ms
	rates []float64 // IP bytes/s of each download
}

// figures holds the figures without or with the limit.
type figures struct {
	echo.Figures
	// RunMeans are each run's mean, in milliseconds.
	RunMeans  []float64   `json:"mean_of_each_run_ms"`
	Downloads stat.Spread `json:"downloads"`          // both together, IP bytes/s, of each run
	Ratio     float64     `json:"downloads_of_limit"` // their mean, of 512 KB/s
	Jain      float64     `json:"jain"`               // fairness of the two downloads' means
}

// Run runs an experiment on a site.
func Run(ctx context.Context, b *bed.Bed, site Site, title, paper string) error {
	server, err := ftp.New(b, "")
	if err != nil {
		return err
	}
	url := fmt.Sprintf("ftp://%s/%s", site.FilesAt, ftp.Path)
	if _, err := b.Receiver(site.Echo, testbed.ReceiverConfig{Ports: []testbed.Port{echo.Port()}}); err != nil {
		return err
	}
	idle, err := echo.Measure(ctx, b, site.Typist, site.EchoAt, pause, b.Length(3*time.Second, time.Second))
	if err != nil {
		return err
	}
	var serves *exec.Cmd
	serve := func(on bool, rate int) error {
		if serves != nil {
			if err := bed.Kill(serves); err != nil {
				return err
			}
		}
		err := b.Switch(ctx, on)
		if err == nil && on {
			serves, err = server.ByInetd(ctx, site.Files, "--up", fmt.Sprintf("%dKbyte/sec", rate>>10))
		} else if err == nil {
			serves, err = server.Alone(ctx, site.Files)
		}
		return err
	}
	change := func(on bool) error { return serve(on, limit) }
	rounds := 5 // each with A B B A
	if b.Quick {
		rounds = 1
	}
	run := func() (measured, error) {
		return one(ctx, b, site, url, b.Length(2700*time.Millisecond, 1500*time.Millisecond))
	}
	off, on, err := bed.Quads(ctx, rounds, change, run)
	if err != nil {
		return err
	}
	if err := serve(true, half); err != nil {
		return err
	}
	var slow []measured
	for range 2 * rounds {
		m, err := run()
		if err != nil {
			return err
		}
		slow = append(slow, m)
	}
	all, curves := []figures{{Figures: echo.Of("nobody downloads", idle)}}, []chart.Curve{}
	for _, c := range []struct {
		name string
		runs []measured
	}{{"plain Linux", off}, {"fair-inetd, 512 KB/s", on}, {"fair-inetd, 256 KB/s", slow}} {
		f, trips := compute(c.name, c.runs)
		all = append(all, f)
		if len(curves) < 2 {
			curves = append(curves, echo.Dots(c.name, trips))
		}
	}
	for _, f := range all {
		b.Printf("%s; downloads %.3f MB/s\n", f.Figures, f.Downloads.Mean/1e6)
	}
	b.Printf("with the limit: downloads %.4f of it, Jain %.4f\npaper: %s\n", all[2].Ratio, all[2].Jain, paper)
	if err := b.Draw("", chart.Chart{Title: title, X: "byte", Y: "ms", LogY: true, YMax: 1000, Curves: curves}); err != nil {
		return err
	}
	return b.Write(all)
}

// one performs a run: downloads, and the typing once they are under way.
func one(ctx context.Context, b *bed.Bed, site Site, url string, length time.Duration) (m measured, err error) {
	var curls []*exec.Cmd
	var captures []*capture.Capture
	for _, n := range site.Downloaders {
		c, err := capture.Start(n)
		if err != nil {
			return m, err
		}
		curl, err := b.Start(n, "curl", "-sS", "-o", "/dev/null", url)
		if err != nil {
			return m, err
		}
		captures, curls = append(captures, c), append(curls, curl)
	}
	if err := testbed.Sleep(ctx, settle); err != nil {
		return m, err
	}
	begin := testbed.Now()
	if m.trips, err = echo.Measure(ctx, b, site.Typist, site.EchoAt, pause, length); err != nil {
		return m, err
	}
	for i, c := range captures {
		packets, err := c.Stop()
		if err != nil {
			return m, err
		}
		ports := ftp.Downloads(packets)
		if len(ports) != 1 {
			return m, fmt.Errorf("of download %d there were %d connections", i+1, len(ports))
		}
		m.rates = append(m.rates, capture.Rates(packets, begin, begin.Add(length), length, func(p capture.Packet) bool {
			return p.From == ports[0]
		})...)
		if m.rates[i] == 0 {
			return m, fmt.Errorf("download %d got nothing", i+1)
		}
		if err := bed.Kill(curls[i]); err != nil {
			return m, err
		}
	}
	return m, testbed.Sleep(ctx, 100*time.Millisecond) // until queues are empty
}

func compute(name string, runs []measured) (figures, []float64) {
	f := figures{}
	var trips, sums []float64
	each := make([]float64, len(runs[0].rates))
	for _, r := range runs {
		trips = append(trips, r.trips...)
		f.RunMeans = append(f.RunMeans, stat.Of(r.trips).Mean)
		sum := 0.0
		for i, rate := range r.rates {
			sum += rate
			each[i] += rate
		}
		sums = append(sums, sum)
	}
	f.Figures, f.Downloads, f.Jain = echo.Of(name, trips), stat.Of(sums), testbed.Jain(each)
	f.Ratio = f.Downloads.Mean / limit
	return f, trips
}
