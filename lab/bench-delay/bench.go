// Package delay measures the time of a question of 100 bytes by UDP and its answer, and of a small answer by
// HTTP. Meanwhile another program, or another socket of the same program, uses up their common limit. The result is
// a Markdown table. It needs root and the netnice program ($NETNICE, or bin/netnice).
//
//	go run ./lab bench delay -quick
//	go run ./lab bench delay -only '1MB/s down beside UDP'
package delay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/lab/internal/bed"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	only := regexp.MustCompile("")
	flags.Func("only", "measure cells whose name, such as '1MB/s down beside UDP', matches this `REGEXP`", func(v string) (err error) {
		only, err = regexp.Compile(v)
		return err
	})
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		cells := slices.DeleteFunc(allCells(b.Quick), func(c cell) bool { return !only.MatchString(c.String()) })
		if len(cells) == 0 {
			return errors.New("no cell has such a name")
		}
		return run(ctx, b, cells)
	})
}

// result is the content of the result file.
type result struct {
	WindowSeconds float64    `json:"window_seconds"` // each cell has two windows, one after the other
	Paths         []baseline `json:"paths_without_limit"`
	Cells         []figures  `json:"cells"`
}

func run(ctx context.Context, b *bed.Bed, cells []cell) error {
	out := result{WindowSeconds: windowOf(b).Seconds()}
	b.Printf("Delays in ms, of what began in the first %g s and in the %g s after: p50 / p99 (number).\n\n%s\n", out.WindowSeconds, out.WindowSeconds, header())
	for len(cells) > 0 {
		distant := cells[0].distant()
		same := slices.IndexFunc(cells, func(c cell) bool { return c.distant() != distant })
		if same < 0 {
			same = len(cells)
		}
		if err := runPath(ctx, b, distant, cells[:same], &out); err != nil {
			return err
		}
		cells = cells[same:]
	}
	return b.Write(out)
}

// runPath measures cells that have the same path, with a daemon in the namespace of the limited programs.
func runPath(ctx context.Context, b *bed.Bed, distant bool, cells []cell, out *result) (err error) {
	pair, err := openPath(distant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	base, err := measureBaseline(ctx, pair, distant)
	if err != nil {
		return fmt.Errorf("the path without a limit: %w", err)
	}
	out.Paths = append(out.Paths, base)
	if err := b.UpIn(ctx, pair.A); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Down(ctx)) }()
	if err := b.Quiet(ctx); err != nil {
		return err
	}
	for _, c := range cells {
		f, err := c.measure(ctx, b, pair)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		out.Cells = append(out.Cells, f)
		b.Printf("%s\n", f.row(base))
	}
	return nil
}

// openPath makes a path of 20 ms, or one without distance.
func openPath(distant bool) (*testbed.Pair, error) {
	if distant {
		return testbed.NewDistantPair(relay.RoundTrip(roundTrip))
	}
	return testbed.NewPairInOrder()
}

// windowOf returns the length of each of a cell's two windows.
func windowOf(b *bed.Bed) time.Duration { return b.Length(window, quickWindow) }
