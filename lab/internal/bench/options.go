package bench

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options holds the options of the command line.
type Options struct {
	Quick    bool
	All      bool
	RTTs     []time.Duration // nil = not given, like Losses
	Losses   []float64
	Only     *regexp.Regexp
	Limiters []string
	Interval time.Duration
	JSON     string
	Netnice  string
	Check    bool
	IPv6     bool
	QuickAck bool
	List     bool
}

// Parse reads the bench's options.
func (p Program) Parse(f *flag.FlagSet, args []string) (Options, error) {
	limiters := p.Limiters
	var o Options
	f.BoolVar(&o.Quick, "quick", false, "a subset that takes about a minute")
	f.BoolVar(&o.All, "all", false, "every combination: hours; choose with -only")
	f.Func("rtt", "round trips of the path instead of the usual sample, such as `0,20ms,100ms`", o.addRTTs)
	f.Func("loss", "parts of the packets that the path loses, such as `0,0.01`", o.addLosses)
	f.Func("only", "run cells whose name matches this `REGEXP`, such as 'netnice 1MB/s x16 bbr'", func(v string) error {
		var err error
		o.Only, err = regexp.Compile(v)
		return err
	})
	chosen := f.String("limiters", strings.Join(limiters, ","), "what to compare")
	f.DurationVar(&o.Interval, "interval", cmp.Or(p.Interval, 4*time.Second), "of traffic in a cell, the first second included; cells below 1 MB/s take twice as long")
	f.StringVar(&o.JSON, "json", "", "also write the figures to this `FILE`")
	f.StringVar(&o.Netnice, "netnice", os.Getenv("NETNICE"), "the netnice `PROGRAM` (default $NETNICE or bin/netnice)")
	f.BoolVar(&o.Check, "check", false, "exit with 1 if netnice misses a figure that is wanted")
	f.BoolVar(&o.IPv6, "6", false, "IPv6")
	f.BoolVar(&o.QuickAck, "quickack", false, "have the receiver acknowledge each segment at once")
	f.BoolVar(&o.List, "list", false, "print the names of the cells and the time that they would take")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.Limiters = strings.Split(*chosen, ",")
	for _, l := range o.Limiters {
		if !slices.Contains(limiters, l) {
			return o, fmt.Errorf("unknown limiter %q: want one of %s", l, strings.Join(limiters, ", "))
		}
	}
	if o.Interval < 1500*time.Millisecond {
		return o, errors.New("-interval must be at least 1.5s, of which the first second counts for itself")
	}
	if p.Near && (o.RTTs != nil || o.Losses != nil || o.QuickAck) {
		return o, fmt.Errorf("%s has no path with distance: leave out -rtt, -loss and -quickack", f.Name())
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.Netnice == "" {
		o.Netnice = filepath.Join("bin", "netnice")
	}
	return o, nil
}

func (o *Options) addRTTs(v string) error {
	for part := range strings.SplitSeq(v, ",") {
		d := time.Duration(0)
		if part != "0" {
			var err error
			if d, err = time.ParseDuration(part); err != nil {
				return err
			}
		}
		o.RTTs = append(o.RTTs, d)
	}
	return nil
}

func (o *Options) addLosses(v string) error {
	for part := range strings.SplitSeq(v, ",") {
		p, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return err
		}
		o.Losses = append(o.Losses, p)
	}
	return nil
}
