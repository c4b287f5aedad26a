// Package calls measures the cost of netnice for the system calls of programs that it does not limit: other
// socket options, new sockets, fork and exec. It repeats the same short measurement without netnice and with it (A B
// B A), in each state. The states are: up without a limit, a limit on another process, a limit on a user, both with
// rules, and a limit on the measured process itself. Pairs during which another netnice started or ended do not
// count. Beside another one that stays, a call pays the kernel's part already.
//
//	go run ./lab bench calls
//	go run ./lab bench calls -rounds 30 -state "a limit elsewhere"
package calls

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/stat"
)

// state is the state of netnice during a measurement.
type state struct {
	name  string
	rules bool
	limit func(o *bench) []string // subjects
}

func states() []state {
	other := func(o *bench) []string { return []string{"pid:" + strconv.Itoa(o.other)} }
	return []state{
		{name: "no limit", limit: func(*bench) []string { return nil }},
		{name: "a limit elsewhere", limit: other},
		{name: "a user's limit elsewhere", limit: func(*bench) []string { return []string{"user:4004004"} }},
		{name: "a limit elsewhere, and rules", limit: other, rules: true},
		{name: "limited itself", limit: func(*bench) []string { return []string{"pid:" + strconv.Itoa(os.Getpid())} }},
	}
}

type bench struct {
	*bed.Bed
	rounds, most int
	interval     time.Duration
	only         string
	other        int // pid
	rulesDir     string
	cgroup       string // cgroup of the hooks
}

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	var o bench
	flags.IntVar(&o.rounds, "rounds", 15, "of without, with, with, without")
	flags.DurationVar(&o.interval, "interval", 30*time.Millisecond, "of one measurement")
	flags.StringVar(&o.only, "state", "", "only this `STATE`")
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		o.Bed = b
		if b.Quick {
			o.rounds, o.interval = 2, 10*time.Millisecond
		}
		return o.run(ctx)
	})
}

// cell is one call in one state.
type cell struct {
	Call  string `json:"call"`
	State string `json:"state"`
	// Without is the CPU time of one call without netnice, and More is the additional time with it.
	Without stat.Spread   `json:"without_ns"`
	More    stat.Interval `json:"more_ns"`
	Ratio   stat.Interval `json:"ratio"`
	Clock   stat.Interval `json:"ratio_by_the_clock"`
	// Beside is the number of other software's programs for setsockopt during the measurement. With one of them,
	// More does not contain the kernel's own cost of any program.
	Beside int `json:"beside"`
	// Programs holds netnice's programs that run at such a call. The value is the ns that the kernel counts for one
	// run, including its counting.
	Programs map[string]float64 `json:"programs_ns"`
}

func (o *bench) run(ctx context.Context) error {
	o.most = 3 * o.rounds
	cmd, err := o.Start(nil, "sleep", "infinity")
	if err != nil {
		return err
	}
	o.other = cmd.Process.Pid
	if o.rulesDir, err = os.MkdirTemp("", "netnice-rules-"); err != nil {
		return fmt.Errorf("make a folder for rules: %w", err)
	}
	o.Defer(func() error { return os.RemoveAll(o.rulesDir) })
	who, err := identity.New(identity.Options{})
	if err != nil {
		return err
	}
	if o.cgroup, err = who.CgroupRoot(); err != nil {
		return err
	}
	var cells []cell
	runtime.LockOSThread()
	for _, s := range states() {
		if o.only != "" && o.only != s.name {
			continue
		}
		of, err := o.measureState(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		o.print(s, of)
		cells = append(cells, of...)
	}
	return o.Write(cells)
}

// writeRules writes twenty rules that match no process here.
func (o *bench) writeRules(on bool) error {
	text := ""
	for i := range 20 {
		if on {
			text += fmt.Sprintf("[[rule]]\nname = \"r%d\"\nprogram = \"no-such-program-%d\"\nup = \"1MB/s\"\n\n", i, i)
		}
	}
	if err := os.WriteFile(filepath.Join(o.rulesDir, "netnice.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	return nil
}

// change brings netnice into the state, or ends the state.
func (o *bench) change(ctx context.Context, s state, on bool) error {
	o.Flags = []string{"--config-dir", o.rulesDir}
	if err := o.writeRules(s.rules); err != nil {
		return err
	}
	if err := o.Switch(ctx, on); err != nil || !on {
		return err
	}
	rate := uint64(1e9)
	for _, text := range s.limit(o) {
		subject, err := api.ParseSubject(text)
		if err != nil {
			return err
		}
		if _, err := o.Client.Set(ctx, api.SetRequest{Subject: subject, Wish: api.Wish{UpBytesPerSec: &rate}}); err != nil {
			return fmt.Errorf("limit %s: %w", text, err)
		}
	}
	return testbed.Sleep(ctx, 200*time.Millisecond) // the state's background work is over by then
}

// pass is one measurement of all calls, with the number of programs for socket options.
type pass struct {
	figures  []figure
	programs int
}

func (o *bench) pass() (p pass, err error) {
	before, err := o.programs()
	if err != nil {
		return p, err
	}
	for _, c := range calls() {
		f, err := measure(c, o.interval)
		if err != nil {
			return p, fmt.Errorf("%s: %w", c.name, err)
		}
		p.figures = append(p.figures, f)
	}
	if p.programs, err = o.programs(); err == nil && p.programs != before {
		p.programs = -1
	}
	return p, err
}

// programs returns the number of programs on the root cgroup that run at each setsockopt.
func (o *bench) programs() (int, error) {
	dir, err := os.Open(o.cgroup)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: ebpf.AttachCGroupSetsockopt})
	if err != nil {
		return 0, fmt.Errorf("list programs on %s: %w", o.cgroup, err)
	}
	return len(r.Programs), nil
}

func (o *bench) measureState(ctx context.Context, s state) ([]cell, error) {
	var off, on []pass
	for i := 0; len(off) < 2*o.rounds; i++ {
		if i == o.most {
			return nil, errors.New("others' netnice comes and goes all the time: run it when nothing else does")
		}
		a, b, err := bed.Quads(ctx, 1, func(on bool) error { return o.change(ctx, s, on) }, o.pass)
		if err != nil {
			return nil, err
		}
		for k := range a {
			if a[k].programs >= 0 && b[k].programs == a[k].programs+1 {
				off, on = append(off, a[k]), append(on, b[k])
			}
		}
	}
	var cells []cell
	for i, c := range calls() {
		beside := 0
		var more, ratio, clock, without []float64
		for k := range off {
			x, y := off[k].figures[i], on[k].figures[i]
			without, beside = append(without, x.cpu), max(beside, off[k].programs)
			more, ratio, clock = append(more, y.cpu-x.cpu), append(ratio, y.cpu/x.cpu), append(clock, y.clock/x.clock)
		}
		cells = append(cells, cell{
			Call: c.name, State: s.name, Without: stat.Of(without),
			More: stat.Bootstrap(more), Ratio: stat.Bootstrap(ratio), Clock: stat.Bootstrap(clock), Beside: beside,
		})
	}
	return cells, o.account(ctx, s, cells)
}

// account reads the time of netnice's programs from the kernel's statistics, which cost time themselves.
func (o *bench) account(ctx context.Context, s state, cells []cell) error {
	if err := o.change(ctx, s, true); err != nil {
		return err
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("switch BPF statistics on: %w", err)
	}
	defer stats.Close()
	for i, c := range calls() {
		before, err := o.Costs()
		if err != nil {
			return err
		}
		f, err := measure(c, o.interval)
		if err != nil {
			return err
		}
		after, err := o.Costs()
		if err != nil {
			return err
		}
		cells[i].Programs = map[string]float64{}
		for name, p := range bed.Sub(after, before) {
			// The statistics include calls of other processes: only programs that run at nearly each measured call
			// count.
			if float64(p.Runs) > 0.9*float64(o.interval)/f.clock {
				cells[i].Programs[name] = float64(p.Time.Nanoseconds()) / float64(p.Runs)
			}
		}
	}
	return nil
}

func (o *bench) print(s state, cells []cell) {
	o.Printf("%s: CPU time of a call, %d pairs of %v; medians, 95%% confidence intervals\n\n", s.name, cells[0].More.N, o.interval)
	for _, c := range cells {
		o.Printf("  %-28s %9.0f ns without   %+7.0f ns [%+.0f, %+.0f]   x %.3f [%.3f, %.3f]   by the clock x %.3f", c.Call, c.Without.Median,
			c.More.Median, c.More.Low, c.More.High, c.Ratio.Median, c.Ratio.Low, c.Ratio.High, c.Clock.Median)
		for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
			o.Printf("  %s %.0f ns", name, c.Programs[name])
		}
		o.Printf("\n")
	}
	if cells[0].Beside > 0 {
		o.Printf("  beside %d programs of others: what the kernel takes to call any is not in these figures\n", cells[0].Beside)
	}
	o.Printf("\n")
}
