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
	Raw   [2][]float64  `json:"runs"`              // without, with
}

// String returns the rates in MB/s.
func (c Comparison) String() string {
	return fmt.Sprintf("MB/s without %6.0f (%.0f..%.0f, sd %.0f)  with %6.0f (%.0f..%.0f, sd %.0f)  ratio %.4f [%.4f, %.4f], %d pairs",
		c.Off.Median/1e6, c.Off.Min/1e6, c.Off.Max/1e6, c.Off.SD/1e6,
		c.On.Median/1e6, c.On.Min/1e6, c.On.Max/1e6, c.On.SD/1e6,
		c.Ratio.Median, c.Ratio.Low, c.Ratio.High, c.Ratio.N)
}

// Compare computes a Comparison from runs in the order of Quads.
func Compare(off, on []float64) Comparison {
	var ratios []float64
	for i := range off {
		if off[i] > 0 {
			ratios = append(ratios, on[i]/off[i])
		}
	}
	return Comparison{Off: stat.Of(off), On: stat.Of(on), Ratio: stat.Bootstrap(ratios), Raw: [2][]float64{off, on}}
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
