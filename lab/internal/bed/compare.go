package bed

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Switcher returns a function that switches netnice on and off for comparisons. On means that the daemon is up and
// limits another process. All hooks are then attached, while no limit covers the measured traffic.
func (b *Bed) Switcher(ctx context.Context) (func(on bool) error, error) {
	other, err := b.Start(nil, "sleep", "infinity")
	if err != nil {
		return nil, err
	}
	return func(on bool) error { return b.set(ctx, on, other) }, nil
}

func (b *Bed) set(ctx context.Context, on bool, other *exec.Cmd) error {
	if err := b.Switch(ctx, on); err != nil || !on {
		return err
	}
	if err := b.LimitPID(ctx, other.Process.Pid, 1e6); err != nil {
		return err
	}
	return b.Quiet(ctx) // the command's work and the background load of programs are then over
}

// Comparison compares the same measurement without and with netnice.
type Comparison struct {
	Off   stat.Spread   `json:"without"`
	On    stat.Spread   `json:"with"`
	Ratio stat.Interval `json:"with_over_without"` // ratios of neighbouring runs
	// PerCPU has the same ratios of bytes per second of the machine's processors: WithCPU.
	PerCPU *stat.Interval `json:"per_cpu_second_with_over_without,omitempty"`
	Raw    [2][]float64   `json:"runs"` // without, with
}

// String returns the rates in MB/s.
func (c Comparison) String() string {
	text := fmt.Sprintf("MB/s without %6.0f (%.0f..%.0f, sd %.0f)  with %6.0f (%.0f..%.0f, sd %.0f)  ratio %.4f [%.4f, %.4f], %d pairs",
		c.Off.Median/1e6, c.Off.Min/1e6, c.Off.Max/1e6, c.Off.SD/1e6,
		c.On.Median/1e6, c.On.Min/1e6, c.On.Max/1e6, c.On.SD/1e6,
		c.Ratio.Median, c.Ratio.Low, c.Ratio.High, c.Ratio.N)
	if c.PerCPU != nil {
		text += fmt.Sprintf("; per processor second %.4f [%.4f, %.4f]", c.PerCPU.Median, c.PerCPU.Low, c.PerCPU.High)
	}
	return text
}

// Compare computes a Comparison from runs in the order of Quads.
func Compare(off, on []float64) Comparison {
	return Comparison{Off: stat.Of(off), On: stat.Of(on), Ratio: ratios(off, on), Raw: [2][]float64{off, on}}
}

// ratios returns those of neighbouring runs, on over off.
func ratios(off, on []float64) stat.Interval {
	var list []float64
	for i := range off {
		if off[i] > 0 {
			list = append(list, on[i]/off[i])
		}
	}
	return stat.Bootstrap(list)
}

// Run is one measurement of a transfer.
type Run struct {
	Rate         float64 // bytes/s
	PerCPUSecond float64 // bytes per second that the machine's processors were busy
}

// WithCPU returns a function that measures by once, and also what the machine's processors spend meanwhile. On a machine
// that others share, rates of GB/s vary by a fifth from run to run, and this by some per cent.
func WithCPU(once func() (bytesPerSec float64, err error)) func() (Run, error) {
	return func() (Run, error) {
		before, err := testbed.ReadMachineCPU()
		if err != nil {
			return Run{}, err
		}
		begin := time.Now()
		rate, err := once()
		if err != nil {
			return Run{}, err
		}
		took := time.Since(begin).Seconds()
		after, err := testbed.ReadMachineCPU()
		if err != nil {
			return Run{}, err
		}
		return Run{Rate: rate, PerCPUSecond: rate * took / max(after.Sub(before).Busy, 0.01)}, nil
	}
}

// CompareRuns is Compare for runs by WithCPU.
func CompareRuns(off, on []Run) Comparison {
	rates := func(r Run) float64 { return r.Rate }
	perCPU := func(r Run) float64 { return r.PerCPUSecond }
	c := Compare(each(off, rates), each(on, rates))
	both := ratios(each(off, perCPU), each(on, perCPU))
	c.PerCPU = &both
	return c
}

func each(runs []Run, of func(Run) float64) []float64 {
	list := make([]float64, len(runs))
	for i, r := range runs {
		list[i] = of(r)
	}
	return list
}

// Bulk sends with the lab's own static Go program for that long and returns
// the payload bytes per second that arrived after the first tenth.
func (b *Bed) Bulk(ctx context.Context, n *testbed.NetNS, rx *testbed.Receiver, c testbed.SenderConfig, d time.Duration) (float64, error) {
	tx, err := testbed.StartSender(n, c)
	if err != nil {
		return 0, err
	}
	defer tx.Close()
	begin, err := tx.Start()
	if err != nil {
		return 0, err
	}
	if err := testbed.Sleep(ctx, d); err != nil {
		return 0, err
	}
	end := testbed.Now()
	if err := testbed.Sleep(ctx, 60*time.Millisecond); err != nil { // for the last sample
		return 0, err
	}
	_, err = tx.Stop()
	return rx.Goodput(0, begin.Add(d/10), end), err
}
