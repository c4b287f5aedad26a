// Command bench-egress measures how exactly, fairly and cheaply sending is
// limited, side by side: no limit, HTB, netnice, on veth pairs that it makes
// itself. It needs root and the netnice program ($NETNICE, or bin/netnice).
//
//	go run ./lab/bench-egress -quick
//	go run ./lab/bench-egress -only 'netnice 1MB/s x16' -json figures.json
//
// See lab/README.md for what the figures mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

func main() {
	testutil.MaybeRunTraffic()
	o, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench-egress:", err)
		}
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := run(ctx, o, os.Stdout)
	cancel()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench-egress:", err)
		os.Exit(1)
	case o.check && missed > 0:
		os.Exit(1)
	}
}

// options of the command line.
type options struct {
	quick    bool
	all      bool
	rtts     []time.Duration
	losses   []float64
	only     *regexp.Regexp
	limiters []string
	interval time.Duration
	json     string
	netnice  string
	check    bool
	ipv6     bool
	quickAck bool
	list     bool
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-egress", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "a subset that takes about a minute")
	f.BoolVar(&o.all, "all", false, "every combination: hours; choose with -only")
	f.Func("rtt", "round trips of the path instead of the usual sample, such as `0,20ms,100ms`", func(v string) error {
		for part := range strings.SplitSeq(v, ",") {
			d := time.Duration(0)
			if part != "0" {
				var err error
				if d, err = time.ParseDuration(part); err != nil {
					return err
				}
			}
			o.rtts = append(o.rtts, d)
		}
		return nil
	})
	f.Func("loss", "parts of the packets that the path loses, such as `0,0.01`", func(v string) error {
		for part := range strings.SplitSeq(v, ",") {
			p, err := strconv.ParseFloat(part, 64)
			if err != nil {
				return err
			}
			o.losses = append(o.losses, p)
		}
		return nil
	})
	f.Func("only", "run cells whose name matches this `REGEXP`, such as 'netnice 1MB/s x16 bbr'", func(v string) error {
		var err error
		o.only, err = regexp.Compile(v)
		return err
	})
	limiters := f.String("limiters", strings.Join(knownLimiters(), ","), "what to compare")
	f.DurationVar(&o.interval, "interval", 4*time.Second, "of traffic in a cell, the first second included; cells below 1 MB/s take twice as long")
	f.StringVar(&o.json, "json", "", "also write the figures to this `FILE`")
	f.StringVar(&o.netnice, "netnice", os.Getenv("NETNICE"), "the netnice `PROGRAM` (default $NETNICE or bin/netnice)")
	f.BoolVar(&o.check, "check", false, "exit with 1 if netnice misses a figure that is wanted")
	f.BoolVar(&o.ipv6, "6", false, "IPv6")
	f.BoolVar(&o.quickAck, "quickack", false, "have the receiver acknowledge each segment at once")
	f.BoolVar(&o.list, "list", false, "print the names of the cells and the time that they would take")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.limiters = strings.Split(*limiters, ",")
	for _, l := range o.limiters {
		if !slices.Contains(knownLimiters(), l) {
			return o, fmt.Errorf("unknown limiter %q: want one of %s", l, strings.Join(knownLimiters(), ", "))
		}
	}
	if o.interval < 1500*time.Millisecond {
		return o, errors.New("-interval must be at least 1.5s, of which the first second counts for itself")
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.netnice == "" {
		o.netnice = filepath.Join("bin", "netnice")
	}
	return o, nil
}

// attempts bounds how often a cell is measured if the machine was disturbed.
const attempts = 3

// run measures every cell and returns how many wanted figures netnice missed.
func run(ctx context.Context, o options, out io.Writer) (missed int, err error) {
	cells := o.cells()
	if uses(cells, limiterTrickle) && !o.list {
		if _, err := exec.LookPath("trickle"); err != nil {
			fmt.Fprintln(out, "trickle is left out: it is not installed (Debian: apt-get install trickle)")
			cells = slices.DeleteFunc(cells, func(c cell) bool { return c.limiter == limiterTrickle })
		}
	}
	fmt.Fprintf(out, "%d cells, about %v\n", len(cells), estimate(cells).Round(time.Second))
	if o.list {
		for _, c := range cells {
			fmt.Fprintln(out, c.name())
		}
		return 0, nil
	}
	if err := testutil.Privileged(); err != nil {
		return 0, err
	}
	b := &bench{limiter: testutil.Command{Path: o.netnice}, quickAck: o.quickAck}
	if uses(cells, limiterNetnice) {
		if _, err := os.Stat(o.netnice); err != nil {
			return 0, fmt.Errorf("find netnice: %w (make build, or -netnice PROGRAM, or -limiters none,htb)", err)
		}
		// A daemon that stays spares the start of one for each cell.
		if !b.limiter.Running(ctx) {
			if err := b.limiter.Run(ctx, "up"); err != nil {
				return 0, err
			}
			defer func() {
				err = errors.Join(err, b.limiter.Run(context.WithoutCancel(ctx), "down"))
			}()
		}
	}
	all := &figures{Version: "v1", Time: time.Now().UTC(), Kernel: kernel(), Interval: o.interval.String()}
	if all.Path, err = b.reference(ctx); err != nil {
		return 0, fmt.Errorf("measure the path without load: %w", err)
	}
	printHeader(out, all.Path)
	for i, c := range cells {
		var f cellFigures
		for attempt := 1; attempt == 1 || f.disturbed() && attempt <= attempts; attempt++ {
			if f, err = b.measure(ctx, c); err != nil {
				return missed, fmt.Errorf("%s: %w", c.name(), err)
			}
			f.Attempts = attempt
		}
		f.judge(all.Path, o.quickAck, carries(all.Cells, c))
		all.Cells = append(all.Cells, f)
		printCell(out, i > 0 && !c.sameGroup(cells[i-1]), f)
		missed += len(f.Missed)
	}
	fmt.Fprintf(out, "\n%d wanted figures missed by netnice (marked *); d: the receiver delays acknowledgements (-quickack)\n", missed)
	return missed, write(o.json, all)
}

// write writes the figures to a file, if one is named.
func write(path string, all *figures) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
