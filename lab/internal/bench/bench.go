// Package bench holds the common parts of the benches of limiters: the matrix of cells and the options that choose
// from it, a path with traffic on it, the figures of that, and the run. Each bench itself puts limits in place,
// states the required figures, and prints.
package bench

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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// Program describes the work of a bench.
type Program struct {
	Limiters []string
	Axes     func(Options) []Axes
	// Measure runs one cell.
	Measure func(context.Context, Options, Cell) (CellFigures, error)
	Near    bool // there is no path with distance: -rtt, -loss and -quickack are refused
	// Interval is the default of -interval; 0 = 4 s.
	Interval time.Duration
	// Open, if set, makes the state that all cells share, and returns a function that removes it. Without Open the
	// bench starts netnice if a cell needs it.
	Open func(ctx context.Context, o Options, cells []Cell) (func() error, error)
	// Refuses, if set, returns the reason why netnice cannot be used, or "". The daemon is up.
	Refuses func(context.Context, Options) (string, error)
	// Judge records the figures that netnice missed. carries says that the path carries more than the limit.
	Judge  func(f *CellFigures, path Path, quickAck, carries bool)
	Header func(io.Writer, Path)
	Print  func(io.Writer, CellFigures)
	Legend string // explains the marks, at the end
}

// Main runs the bench as a command: flags, clean-up, exit code. The flags have the bench's name.
func (p Program) Main(flags *flag.FlagSet, args []string) (exitCode int) {
	o, err := p.Parse(flags, args)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "%s: %v\n", flags.Name(), err)
		}
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	missed, err := p.Run(ctx, o, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", flags.Name(), err)
		return 1
	case o.Check && missed > 0:
		return 1
	}
	return 0
}

// Cells returns the cells that the options choose.
func (p Program) Cells(o Options) []Cell { return o.Cells(p.Axes(o)) }

// attempts bounds the measurements of a cell if the machine was disturbed.
const attempts = 3

// Run measures every cell and returns the number of required figures that netnice missed.
func (p Program) Run(ctx context.Context, o Options, out io.Writer) (missed int, err error) {
	cells := p.Cells(o)
	if o.List {
		announce(out, cells)
		for _, c := range cells {
			fmt.Fprintln(out, c.Name())
		}
		return 0, nil
	}
	if err := testbed.Privileged(); err != nil {
		return 0, err
	}
	if Uses(cells, Trickle) {
		if _, err := exec.LookPath("trickle"); err != nil {
			cells = leaveOut(out, cells, Trickle, "it is not installed (Debian: apt-get install trickle)")
		}
	}
	end, err := p.open(ctx, o, cells)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if Uses(cells, Netnice) {
		why, problem := p.refuses(ctx, o)
		if problem != nil {
			return 0, problem
		}
		switch {
		case why != "" && o.Check:
			return 0, fmt.Errorf("nothing to check: %s", why)
		case why != "":
			cells = leaveOut(out, cells, Netnice, why)
		}
	}
	announce(out, cells)
	all := &Figures{Version: "v1", Time: time.Now().UTC(), Kernel: kernel(), Interval: o.Interval.String()}
	if all.Path, err = reference(ctx, o.QuickAck); err != nil {
		return 0, fmt.Errorf("measure the path without load: %w", err)
	}
	p.Header(out, all.Path)
	for i, c := range cells {
		f, err := p.cell(ctx, o, c)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", c.Name(), err)
		}
		p.Judge(&f, all.Path, o.QuickAck, carries(all.Cells, c))
		all.Cells = append(all.Cells, f)
		if i > 0 && !c.sameGroup(cells[i-1]) {
			fmt.Fprintln(out)
		}
		p.Print(out, f)
		missed += len(f.Missed)
	}
	fmt.Fprintf(out, "\n%d wanted figures missed by netnice (marked *); %s\n", missed, p.Legend)
	return missed, write(o.JSON, all)
}

// cell measures a cell, again if the machine was disturbed.
func (p Program) cell(ctx context.Context, o Options, c Cell) (f CellFigures, err error) {
	for attempt := 1; attempt == 1 || f.disturbed() && attempt <= attempts; attempt++ {
		if f, err = p.Measure(ctx, o, c); err != nil {
			return f, err
		}
		f.Attempts = attempt
	}
	return f, nil
}

// open makes the state that all cells share.
func (p Program) open(ctx context.Context, o Options, cells []Cell) (end func() error, err error) {
	switch {
	case p.Open != nil:
		return p.Open(ctx, o, cells)
	case Uses(cells, Netnice):
		return comeUp(ctx, o)
	}
	return func() error { return nil }, nil
}

func (p Program) refuses(ctx context.Context, o Options) (why string, err error) {
	if p.Refuses == nil {
		return "", nil
	}
	return p.Refuses(ctx, o)
}

func announce(out io.Writer, cells []Cell) {
	fmt.Fprintf(out, "%d cells, about %v\n", len(cells), Estimate(cells).Round(time.Second))
}

// leaveOut prints the reason to leave a limiter out, and returns the other cells.
func leaveOut(out io.Writer, cells []Cell, limiter, why string) []Cell {
	fmt.Fprintf(out, "%s is left out: %s\n", limiter, why)
	return slices.DeleteFunc(cells, func(c Cell) bool { return c.Limiter == limiter })
}

// Limiter returns netnice as an ordinary user uses it.
func (o Options) Limiter() testbed.Command { return testbed.Command{Path: o.Netnice} }

// comeUp starts a daemon that stays, which saves a start for each cell. It returns a function that ends the daemon.
func comeUp(ctx context.Context, o Options) (down func() error, err error) {
	if _, err := os.Stat(o.Netnice); err != nil {
		others := slices.DeleteFunc(slices.Clone(o.Limiters), func(l string) bool { return l == Netnice })
		return nil, fmt.Errorf("find netnice: %w (make build, or -netnice PROGRAM, or -limiters %s)", err, strings.Join(others, ","))
	}
	if o.Limiter().Running(ctx) {
		return func() error { return nil }, nil
	}
	if err := o.Limiter().Run(ctx, "up"); err != nil {
		return nil, err
	}
	return func() error { return o.Limiter().Run(context.WithoutCancel(ctx), "down") }, nil
}

// write writes the figures to a file, if one is named.
func write(path string, all *Figures) error {
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
