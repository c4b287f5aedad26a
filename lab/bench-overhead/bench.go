// Package overhead measures the cost of netnice for traffic that it does not limit. It repeats the same short
// measurement without netnice and with it (A B B A), over lo and over veth. With -limited N, N other processes have
// limits meanwhile, so that every hook is attached. They are in a cgroup of their own, as under systemd, unless
// -together is given. With -both, limits really bind other traffic meanwhile, sent and received, by TCP and by UDP.
// With -floor there is no netnice, but empty programs at its hooks: they show the cost of a call.
//
//	go run ./lab bench overhead
//	go run ./lab bench overhead -limited 1000 -rounds 20
//	go run ./lab bench overhead -both -rounds 20
//	go run ./lab bench overhead -floor send,in,out
package overhead

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/stat"
)

// bench holds the options and the state that all measurements share.
type bench struct {
	*bed.Bed
	limited, rounds int
	together        bool
	anyCPU          bool
	passes          int
	interval        time.Duration
	pair            *testbed.Pair
	others          []int // pids
	both            *limited
	floor           *floor // nil = netnice
}

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	var o bench
	flags.IntVar(&o.limited, "limited", 0, "limit `N` other processes meanwhile")
	flags.BoolVar(&o.together, "together", false, "the others are in this process's own cgroup")
	flags.BoolVar(&o.anyCPU, "any-cpu", false, "with -both: these programs may run where round trips are measured")
	flags.IntVar(&o.rounds, "rounds", 40, "of without, with, with, without")
	flags.IntVar(&o.passes, "passes", 1, "measure `N` times in each state and take the median")
	flags.DurationVar(&o.interval, "interval", 60*time.Millisecond, "of one measurement")
	both := flags.Bool("both", false, "programs in a cgroup of their own send and receive over the same device, limited to 1 MB/s each way")
	hooks := flags.String("floor", "", "empty programs at these `HOOKS` instead of netnice, of send,in,out")
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		o.Bed = b
		if b.Quick {
			o.rounds = 4
		}
		if *hooks != "" {
			var err error
			if o.floor, err = newFloor(strings.Split(*hooks, ",")); err != nil {
				return err
			}
		}
		return o.run(ctx, *both)
	})
}

// cell is one kind of traffic on one path.
type cell struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// Clock and CPU are figures with netnice over figures without it, of neighbouring measurements.
	Clock stat.Interval `json:"rate_ratio"`
	CPU   stat.Interval `json:"operations_per_cpu_second_ratio"`

	Without stat.Spread `json:"without_per_second"`
	With    stat.Spread `json:"with_per_second"`

	// The verdict on each ratio is "ok", "beyond" the required bound, or "unsettled".
	ClockVerdict string `json:"rate_verdict"`
	CPUVerdict   string `json:"operations_per_cpu_second_verdict"`

	// BPFNanos is the programs' own time per operation, as the kernel counts it, without the counting itself.
	// BPFPart is that time as a part of the operation's CPU time.
	BPFNanos  float64             `json:"bpf_ns_per_operation"`
	BPFPart   float64             `json:"bpf_part_of_cpu_time"`
	Programs  map[string]bed.Cost `json:"bpf_programs"`
	OpsInStat float64             `json:"operations_while_counted"`
}

type figures struct {
	Limited  int  `json:"other_processes_limited"`
	Together bool `json:"in_one_cgroup"`
	Rounds   int  `json:"rounds"`
	Passes   int  `json:"passes"`
	AnyCPU   bool `json:"any_cpu,omitempty"` // the other traffic has no CPU of its own
	// Both is other traffic that is limited meanwhile; nil = none.
	Both   *limited `json:"limited_traffic,omitempty"`
	Wanted float64  `json:"wanted_within"`
	Empty  float64  `json:"ns_counted_for_an_empty_program"`
	Cells  []*cell  `json:"cells"`
}

func (o *bench) run(ctx context.Context, both bool) error {
	if o.Machine.OtherLinks > 0 {
		o.Printf("beware: somebody else's BPF programs are attached; figures without netnice are not without BPF\n\n")
	}
	var err error
	if o.pair, err = o.Pair(); err != nil {
		return err
	}
	if err := o.startOthers(); err != nil {
		return err
	}
	if both {
		if o.both, err = o.startLimited(); err != nil {
			return err
		}
	}
	f := figures{Limited: o.limited, Together: o.together, Rounds: o.rounds, Passes: o.passes, Both: o.both, AnyCPU: o.anyCPU, Wanted: o.wanted()}
	for _, kind := range []string{kindTCP, kindRR, kindUDP} {
		for _, path := range []string{"lo", "veth"} {
			f.Cells = append(f.Cells, &cell{Kind: kind, Path: path})
		}
	}
	off, on, err := bed.Quads(ctx, o.rounds, func(on bool) error { return o.change(ctx, on) },
		func() ([]figure, error) { return o.pass(f.Cells) })
	if err != nil {
		return err
	}
	for i, c := range f.Cells {
		c.compute(off, on, i, f.Wanted)
	}
	if o.floor == nil {
		if f.Empty, err = o.account(ctx, f.Cells); err != nil {
			return err
		}
	} else if err := o.floor.change(o, false); err != nil {
		return err
	}
	o.print(f)
	if o.limited > 0 {
		o.Name += "-" + strconv.Itoa(o.limited)
	}
	if o.together {
		o.Name += "-together"
	}
	if both {
		o.Name += "-both"
	}
	if o.floor != nil {
		o.Name += "-floor-" + strings.Join(o.floor.hooks, "-")
	}
	return o.Write(f)
}

// startOthers starts the processes that get limits.
func (o *bench) startOthers() error {
	var procs string
	if !o.together && o.limited > 0 {
		dir, err := o.Cgroup("limited")
		if err != nil {
			return err
		}
		procs = filepath.Join(dir, "cgroup.procs")
	}
	for range o.limited {
		cmd, err := o.Start(nil, "sleep", "infinity")
		if err != nil {
			return err
		}
		o.others = append(o.others, cmd.Process.Pid)
		if procs == "" {
			continue
		}
		if err := os.WriteFile(procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			return fmt.Errorf("move a process: %w", err)
		}
	}
	return nil
}

// change switches netnice on or off, and sets the limits of the others.
func (o *bench) change(ctx context.Context, on bool) error {
	if o.floor != nil {
		return o.floor.change(o, on)
	}
	if o.both != nil && on { // in the namespace of the traffic: only there is a queue for UDP egress
		if err := o.UpIn(ctx, o.pair.A); err != nil {
			return err
		}
		if err := o.both.limit(ctx, o); err != nil {
			return err
		}
	}
	if err := o.Switch(ctx, on); err != nil {
		return err
	}
	if on {
		rate := uint64(1e6)
		for _, pid := range o.others {
			_, err := o.Client.Set(ctx, api.SetRequest{
				Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(pid)},
				Wish:    api.Wish{UpBytesPerSec: &rate},
			})
			if err != nil {
				return fmt.Errorf("limit process %d: %w", pid, err)
			}
		}
	}
	if on {
		return o.Quiet(ctx)
	}
	return testbed.Sleep(ctx, 200*time.Millisecond) // the background work of that is over by then
}

// pass measures every cell in one state.
func (o *bench) pass(cells []*cell) ([]figure, error) {
	clock, cpu := make([][]float64, len(cells)), make([][]float64, len(cells))
	for range o.passes {
		for i, c := range cells {
			f, err := o.measure(c)
			if err != nil {
				return nil, fmt.Errorf("%s over %s: %w", c.Kind, c.Path, err)
			}
			clock[i], cpu[i] = append(clock[i], f.perSecond), append(cpu[i], f.perCPU)
		}
	}
	all := make([]figure, len(cells))
	for i := range cells {
		all[i] = figure{perSecond: stat.Median(clock[i]), perCPU: stat.Median(cpu[i])}
	}
	return all, nil
}

func (o *bench) measure(c *cell) (figure, error) {
	if c.Path == "lo" {
		return measure(c.Kind, o.pair.A, o.pair.A, netip.AddrFrom4([4]byte{127, 0, 0, 1}), o.interval)
	}
	return measure(c.Kind, o.pair.A, o.pair.B, o.pair.B4, o.interval)
}

func (c *cell) compute(off, on [][]figure, i int, wanted float64) {
	var clock, cpu, without, with []float64
	for k := range off {
		a, b := off[k][i], on[k][i]
		clock, cpu = append(clock, b.perSecond/a.perSecond), append(cpu, b.perCPU/a.perCPU)
		without, with = append(without, a.perSecond), append(with, b.perSecond)
	}
	c.Clock, c.CPU = stat.Bootstrap(clock), stat.Bootstrap(cpu)
	c.ClockVerdict, c.CPUVerdict = verdict(c.Clock, wanted), verdict(c.CPU, wanted)
	c.Without, c.With = stat.Of(without), stat.Of(with)
}

// account measures each cell once more with the kernel's statistics on, which cost time themselves. It records the
// programs' share. It subtracts the time that the kernel counts for a call of an empty program, and returns it.
func (o *bench) account(ctx context.Context, cells []*cell) (empty float64, err error) {
	if err := o.change(ctx, true); err != nil {
		return 0, err
	}
	if o.both != nil {
		if err := o.both.measure(ctx); err != nil {
			return 0, err
		}
	}
	var stats io.Closer
	if stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err != nil {
		return 0, fmt.Errorf("switch BPF statistics on: %w", err)
	}
	defer stats.Close()
	if empty, err = o.emptyProgram(); err != nil {
		return 0, err
	}
	for _, c := range cells {
		before, err := o.Costs()
		if err != nil {
			return 0, err
		}
		f, err := o.measure(c)
		if err != nil {
			return 0, err
		}
		after, err := o.Costs()
		if err != nil {
			return 0, err
		}
		c.Programs, c.OpsInStat = bed.Sub(after, before), f.ops
		var sum float64
		for _, p := range c.Programs {
			sum += max(0, float64(p.Time.Nanoseconds())-empty*float64(p.Runs))
		}
		c.BPFNanos = sum / f.ops
		c.BPFPart = c.BPFNanos / 1e9 * f.perCPU
	}
	return empty, nil
}

// wanted returns the part that may be lost at most.
func (o *bench) wanted() float64 {
	if o.both != nil {
		return 0.02
	}
	return 0.01
}

// verdict says whether a ratio of with over without is within the required bound, as far as its confidence interval
// shows.
func verdict(i stat.Interval, wanted float64) string {
	switch {
	case i.Low >= 1-wanted:
		return "ok"
	case i.High < 1-wanted:
		return "beyond"
	}
	return "unsettled"
}

// mark shows a verdict next to a figure.
func mark(verdict string) string {
	return map[string]string{"ok": " ", "beyond": "!", "unsettled": "?"}[verdict]
}

func (o *bench) print(f figures) {
	where := "in a cgroup of their own"
	if f.Together {
		where = "in the same cgroup"
	}
	o.Printf("%d other processes limited, %s; %d pairs of %d x %v; medians of with over without, 95%% confidence intervals\n\n", f.Limited, where, 2*f.Rounds, f.Passes, o.interval)
	if f.Both != nil {
		for i, way := range []string{"sent", "received"} {
			r := f.Both.Rates[i]
			o.Printf("limited traffic in another cgroup, %s: %.3f MB/s by TCP, %.3f by UDP, %.4f of the limit\n", way, r.TCP/1e6, r.UDP/1e6, (r.TCP+r.UDP)/limitedRate)
		}
		o.Printf("\n")
	}
	o.Printf("%-16s %-5s %28s  %-28s %-28s %s\n", "", "", "without: min median max", "rate", "per CPU second", "BPF's own time")
	for _, c := range f.Cells {
		unit, by := "k/s", 1e3
		if c.Kind == kindTCP {
			unit, by = "MB/s", 1e6
		}
		o.Printf("%-16s %-5s %7.0f %7.0f %7.0f %-5s %.4f [%.4f, %.4f]%s    %.4f [%.4f, %.4f]%s    %.2f%%", c.Kind, c.Path,
			c.Without.Min/by, c.Without.Median/by, c.Without.Max/by, unit,
			c.Clock.Median, c.Clock.Low, c.Clock.High, mark(c.ClockVerdict),
			c.CPU.Median, c.CPU.Low, c.CPU.High, mark(c.CPUVerdict), 100*c.BPFPart)
		for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
			p := c.Programs[name]
			if often := float64(p.Runs) / c.OpsInStat * perUnit(c.Kind); often >= 0.01 {
				o.Printf("  %s %.2f x %.0f ns", name, often, float64(p.Time.Nanoseconds())/float64(p.Runs)-f.Empty)
			}
		}
		o.Printf("\n")
	}
	o.Printf("\n! beyond %g%%: the whole interval is below %.2f; ? not settled: it holds %.2f\n", 100*f.Wanted, 1-f.Wanted, 1-f.Wanted)
	o.Printf("BPF's own time is less what the kernel counts for a call of an empty program, %.0f ns\n", f.Empty)
	o.Printf("per operation: 64 KB of a stream, one round trip (2 sends, 2 receives), one datagram\n")
}

// perUnit returns the number of counted operations in one unit of the printed figures.
func perUnit(kind string) float64 {
	if kind == kindTCP {
		return writes
	}
	return 1
}
