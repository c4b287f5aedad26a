// Package cpu measures shares of the processors. The programs have 1 or 4 threads, or start other programs.
// Each is limited to n per cent of a processor, alone and next to four programs that use all they can get. The
// mechanisms are netnice, netnice in slots of 1 ms, a group's quota as containers and services have it, and
// cpulimit. nice has no per cent, so its figure is the share that results.
//
//	go run ./lab bench cpu
//	go run ./lab bench cpu -only 'netnice .* n=50 '
package cpu

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/load"
)

const (
	hogs    = 4
	settle  = 300 * time.Millisecond
	quotaUS = 100_000 // the period that systemd and containers have

	inSlots = "slots" // netnice power --slots 1ms
)

// workload is a program to hold.
type workload struct {
	name    string
	kind    load.Kind
	threads int
}

func workloads() []workload {
	return []workload{{"1 thread", load.Spin, 1}, {"4 threads", load.Spin, 4}, {"a build", load.Fork, 1}}
}

// cell is one measurement.
type cell struct {
	By   string  `json:"by"`
	What string  `json:"what"`
	Hogs int     `json:"beside"`
	N    int     `json:"n"`
	Got  float64 `json:"percent"`
	// Least and Most are the least and the most of a second, and Own is the mechanism's own time, in per cent of a
	// processor.
	Least float64 `json:"least_second"`
	Most  float64 `json:"most_second"`
	Own   float64 `json:"mechanism_percent"`
}

type bench struct {
	*bed.Bed
	only    *regexp.Regexp
	seconds int
	cells   []cell
}

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	o := bench{}
	only := flags.String("only", "", "`REGEXP` of cells, as printed")
	flags.IntVar(&o.seconds, "seconds", 4, "of each cell")
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) (err error) {
		o.Bed = b
		if o.only, err = regexp.Compile(*only); err != nil {
			return err
		}
		return o.run(ctx)
	})
}

func (o *bench) run(ctx context.Context) error {
	numbers := []int{1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99, 100}
	if o.Quick {
		numbers, o.seconds = []int{2, 30, 90}, 2
	}
	if err := o.Up(ctx); err != nil {
		return err
	}
	mechanisms := []string{"netnice", inSlots, "cpu quota"}
	if _, err := exec.LookPath("cpulimit"); err == nil {
		mechanisms = append(mechanisms, "cpulimit")
	} else {
		o.Printf("cpulimit is not installed: without it\n")
	}
	o.Printf("%-10s %-10s %-6s %5s  %8s %8s %8s %9s\n", "by", "what", "beside", "n", "got", "least s", "most s", "mechanism")
	for _, beside := range []int{0, hogs} {
		for _, w := range workloads() {
			for _, by := range mechanisms {
				for _, n := range numbers {
					if err := o.measure(ctx, by, w, beside, n); err != nil {
						return fmt.Errorf("%s, %s, n = %d: %w", by, w.name, n, err)
					}
				}
			}
			for _, nice := range []int{0, -10, 10} {
				if err := o.measure(ctx, "nice", w, beside, nice); err != nil {
					return err
				}
			}
		}
	}
	o.summary(mechanisms)
	if err := o.draw(mechanisms); err != nil {
		return err
	}
	return o.Write(o.cells)
}

func (o *bench) measure(ctx context.Context, by string, w workload, beside, n int) (err error) {
	c := cell{By: by, What: w.name, Hogs: beside, N: n, Least: math.Inf(1)}
	if !o.only.MatchString(fmt.Sprintf("%s, %s, beside %d, n=%d ", by, w.name, beside, n)) {
		return nil
	}
	var programs []*load.Program
	defer func() {
		for _, p := range programs {
			err = errors.Join(err, p.Close())
		}
	}()
	p, err := load.Start(w.kind, w.threads)
	if err != nil {
		return err
	}
	programs = append(programs, p)
	for range beside {
		hog, err := load.Start(load.Spin, 1)
		if err != nil {
			return err
		}
		programs = append(programs, hog)
	}
	own, end, err := o.hold(ctx, by, p.PID(), n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := testbed.Sleep(ctx, settle); err != nil {
		return err
	}
	first, err := p.Used()
	if err != nil {
		return err
	}
	ownFirst, begin := own(), time.Now()
	last, at := first, begin
	for range o.seconds {
		if err := testbed.Sleep(ctx, time.Second); err != nil {
			return err
		}
		used, err := p.Used()
		if err != nil {
			return err
		}
		now := time.Now()
		share := (used - last) / now.Sub(at).Seconds() * 100
		c.Least, c.Most = min(c.Least, share), max(c.Most, share)
		last, at = used, now
	}
	over := at.Sub(begin).Seconds()
	c.Got, c.Own = (last-first)/over*100, (own()-ownFirst)/over*100
	o.cells = append(o.cells, c)
	o.Printf("%-10s %-10s %-6d %5d  %8.2f %8.2f %8.2f %9.2f\n", c.By, c.What, c.Hogs, c.N, c.Got, c.Least, c.Most, c.Own)
	return nil
}

// hold applies one of the mechanisms. own returns the mechanism's processor time, and end lifts the share.
func (o *bench) hold(ctx context.Context, by string, pid, n int) (own func() float64, end func() error, err error) {
	none := func() float64 { return 0 }
	switch by {
	case "netnice", inSlots:
		words := []string{"power", strconv.Itoa(pid), strconv.Itoa(n)}
		if by == inSlots {
			words = append(words, "--slots", "1ms")
		}
		if _, err := o.Netnice(ctx, words...); err != nil {
			return nil, nil, err
		}
		own = func() float64 {
			seconds, err := o.CPU()
			if err != nil {
				return math.NaN()
			}
			return seconds
		}
		return own, func() error {
			_, err := o.Netnice(ctx, "power", strconv.Itoa(pid), "0")
			return err
		}, nil
	case "cpu quota":
		end, err := quota(pid, n)
		return none, end, err
	case "nice":
		return none, func() error { return nil }, unix.Setpriority(unix.PRIO_PGRP, pid, n)
	}
	cmd := exec.Command(by, "--quiet", "-m", "-p", strconv.Itoa(pid), "-l", strconv.Itoa(n))
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", by, err)
	}
	own = func() float64 { return load.Threads(cmd.Process.Pid) }
	return own, func() error {
		_ = cmd.Process.Signal(unix.SIGTERM) // the signal makes it continue its program
		_ = cmd.Wait()
		return nil
	}, nil
}

// quota makes a group of the CPU controller with a quota, as systemd's CPUQuota= and containers do, and nothing
// else.
func quota(pid, n int) (end func() error, err error) {
	const v1 = "/sys/fs/cgroup/cpu"
	dir := filepath.Join(v1, fmt.Sprintf("netnice-lab-%d", pid))
	back := v1
	files := map[string]string{"cpu.cfs_quota_us": strconv.Itoa(quotaUS * n / 100)}
	if _, err := os.Stat(v1); err != nil {
		const v2 = "/sys/fs/cgroup"
		dir, back = filepath.Join(v2, filepath.Base(dir)), v2
		files = map[string]string{"cpu.max": fmt.Sprintf("%d %d", quotaUS*n/100, quotaUS)}
		if err := os.WriteFile(filepath.Join(v2, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	files["cgroup.procs"] = strconv.Itoa(pid)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0); err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
	}
	return func() error {
		for range 100 {
			// The program's children return to the old group, too.
			list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				return err
			}
			var one int
			if n, _ := fmt.Sscan(string(list), &one); n == 1 {
				_ = os.WriteFile(filepath.Join(back, "cgroup.procs"), []byte(strconv.Itoa(one)), 0) // it may have ended
				continue
			}
			return os.Remove(dir)
		}
		return fmt.Errorf("%s does not get empty", dir)
	}, nil
}

// summary prints the largest distance from n of each mechanism.
func (o *bench) summary(mechanisms []string) {
	o.Printf("\n%-10s %-6s  %s\n", "by", "beside", "furthest from n, in points; least of a second over n; the mechanism's own")
	for _, by := range mechanisms {
		for _, beside := range []int{0, hogs} {
			off, least, own := 0.0, math.Inf(1), 0.0
			for _, c := range o.cells {
				if c.By == by && c.Hogs == beside {
					off, least, own = max(off, math.Abs(c.Got-float64(c.N))), min(least, c.Least/float64(c.N)), max(own, c.Own)
				}
			}
			o.Printf("%-10s %-6d  %8.2f %8.3f %8.2f\n", by, beside, off, least, own)
		}
	}
}

func (o *bench) draw(mechanisms []string) error {
	c := chart.Chart{Title: "One thread beside four hogs, held to n per cent of a processor", X: "n", Y: "per cent of a processor"}
	for _, by := range mechanisms {
		curve := chart.Curve{Name: by}
		for _, m := range o.cells {
			if m.By == by && m.Hogs == hogs && m.What == "1 thread" {
				curve.Points = append(curve.Points, chart.XY{X: float64(m.N), Y: m.Got})
			}
		}
		c.Curves = append(c.Curves, curve)
	}
	return o.Draw("", c)
}
