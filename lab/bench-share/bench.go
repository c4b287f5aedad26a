// Package share has programs of 1 to 64 connections share one limit, or a line, equally and by weight. It
// measures how near each comes to its part in any two seconds, and compares with HTB with a class for each.
package share

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/netnice/netnice/lab/internal/bed"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	interval := flags.Duration("interval", 8*time.Second, "of one measurement, after all have settled")
	only := regexp.MustCompile("")
	flags.Func("only", "measure cells whose name, such as 'netnice 12.5MB/s x10 weighted 20ms', matches this `REGEXP`", func(v string) (err error) {
		only, err = regexp.Compile(v)
		return err
	})
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		cells := slices.DeleteFunc(allCells(), func(c *cell) bool { return !only.MatchString(c.name()) })
		if len(cells) == 0 {
			return errors.New("no cell has such a name")
		}
		if b.Quick {
			cells, *interval = cells[:min(2, len(cells))], 3*time.Second
		}
		return run(ctx, b, cells, *interval)
	})
}

// figures holds the figures of a cell.
type figures struct {
	Name     string  `json:"name"`
	Limiter  string  `json:"limiter"`
	Rate     uint64  `json:"limit_bytes_per_sec"`
	Line     bool    `json:"line,omitempty"`
	Programs int     `json:"programs"`
	Weighted bool    `json:"weighted"`
	RTT      string  `json:"round_trip,omitempty"`
	Loss     float64 `json:"loss,omitempty"`

	// Least and Most bound the rate of any program in any two seconds, over its ideal part.
	Least float64 `json:"least_over_part"`
	Most  float64 `json:"most_over_part"`
	// LeastMean and MostMean bound it over the whole time.
	LeastMean float64 `json:"least_over_part_in_all"`
	MostMean  float64 `json:"most_over_part_in_all"`
	Sum       float64 `json:"ip_over_limit"`
	LeastSum  float64 `json:"ip_over_limit_in_2s_least"`

	OtherP50 int64    `json:"bystander_rtt_p50_us"`
	OtherP99 int64    `json:"bystander_rtt_p99_us"`
	CPUPerGB float64  `json:"machine_cpu_seconds_per_gb"`
	Missed   []string `json:"missed,omitempty"`
}

func run(ctx context.Context, b *bed.Bed, cells []*cell, interval time.Duration) error {
	b.Printf("any 2 s, and in all: what the program that is furthest below, and above, its part by weight has of it; sum: IP bytes over the limit, in all and least in 2 s\n")
	b.Printf("%-42s %8s %8s %10s %8s %10s %8s %10s %9s %9s\n", "", "2 s", "2 s", "in all", "in all", "sum", "2 s", "p50, us", "p99, us", "CPU s/GB")
	var all []figures
	missed := 0
	for i, c := range cells {
		if i > 0 && !c.beside(cells[i-1]) {
			b.Printf("\n")
		}
		f, err := c.measure(ctx, b, interval)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		mark := ""
		if len(f.Missed) > 0 {
			mark, missed = fmt.Sprintf("  missed: %q", f.Missed), missed+1
		}
		b.Printf("%-42s %8.4f %8.4f %10.4f %8.4f %10.4f %8.4f %10d %9d %9.3f%s\n", f.Name, f.Least, f.Most, f.LeastMean, f.MostMean,
			f.Sum, f.LeastSum, f.OtherP50, f.OtherP99, f.CPUPerGB, mark)
		all = append(all, f)
	}
	b.Printf("\n%d cells of netnice miss a wanted figure: 3%% in any 2 s (5%% at 10 Mbit/s, or a chunk of each connection if that is more), a sum of 0.97, 3 ms for others from 100 Mbit/s on\n", missed)
	return b.Write(all)
}
