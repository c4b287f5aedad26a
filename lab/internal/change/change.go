// Package change analyses a transfer with a limit from its middle on. It computes the rates before and after, and the
// time until the limit is in force.
package change

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/stat"
)

const step = 100 * time.Millisecond

// When holds the instants of a transfer.
type When struct {
	Begin, At, Done, End testbed.Instant // begin of the transfer, limit, end of its command, end of the analysis
}

// Steady returns the instant from which the limit should hold, with all data on the way delivered.
func (w When) Steady() testbed.Instant { return w.Done.Add(time.Second) }

// Figures holds the figures of one transfer. Rates are bytes of IP packets per second.
type Figures struct {
	Before   stat.Spread   `json:"before"`           // per 100 ms
	After    stat.Spread   `json:"after"`            // per 100 ms, from 1 s after the command's end on
	Ratio    float64       `json:"after_over_limit"` // mean
	Command  time.Duration `json:"command_took_ns"`
	Settled  time.Duration `json:"settled_after_ns"` // time from the command's start to the instant of settled; -1: never
	Seconds  []float64     `json:"per_second_after"`
	Series   []float64     `json:"series"`
	StepNS   time.Duration `json:"series_step_ns"`
	Limit    float64       `json:"limit"`
	LimitedS float64       `json:"limited_at_s"`
}

// Of computes the figures from the packets of the transfer.
func Of(packets []capture.Packet, w When, limit float64) Figures {
	f := Figures{Command: w.Done.Sub(w.At), Limit: limit, LimitedS: w.At.Sub(w.Begin).Seconds(), StepNS: step}
	f.Series = capture.Rates(packets, w.Begin, w.End, step, nil)
	// The program starts within the first half second.
	f.Before = stat.Of(capture.Rates(packets, w.Begin.Add(time.Second/2), w.At, step, nil))
	steady := w.Steady()
	f.After = stat.Of(capture.Rates(packets, steady, w.End, step, nil))
	f.Seconds = capture.Rates(packets, steady, w.End, time.Second, nil)
	f.Ratio = stat.Of(f.Seconds).Mean / limit
	f.Settled = settled(capture.Rates(packets, w.At, w.End, step/10, nil), limit)
	return f
}

func (f Figures) String() string {
	held := "held in no five windows in a row"
	if f.Settled >= 0 {
		held = fmt.Sprintf("in force %v after its start", f.Settled.Round(time.Millisecond))
	}
	return fmt.Sprintf("before %.3f MB/s; after %.4f of the limit, 100 ms windows %.3f..%.3f; command %v, %s",
		f.Before.Median/1e6, f.Ratio, f.After.Min/f.Limit, f.After.Max/f.Limit, f.Command.Round(time.Millisecond), held)
}

// settled returns the time from the first rate to the start of the first five windows of 100 ms in a row
// whose means are within 10% of the limit. It returns -1 if there are no such windows. The rates are per 10 ms.
func settled(rates []float64, limit float64) time.Duration {
	const window, windows = 10, 5
	for from := 0; from+window*windows <= len(rates); from++ {
		good := true
		for w := range windows {
			mean := stat.Of(rates[from+w*window : from+(w+1)*window]).Mean
			good = good && mean > 0.9*limit && mean < 1.1*limit
		}
		if good {
			return time.Duration(from) * step / window
		}
	}
	return -1
}

// Curve returns the transfer as a curve for a plot, in MB/s; the limit is at the second at.
func (f Figures) Curve(name string, at float64) chart.Curve {
	c := chart.Curve{Name: name}
	for i, rate := range f.Series {
		if x := (float64(i)+0.5)*step.Seconds() + at - f.LimitedS; x >= 0 {
			c.Points = append(c.Points, chart.XY{X: x, Y: rate / 1e6})
		}
	}
	return c
}
