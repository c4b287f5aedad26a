package e22

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/load"
)

// printed is one line of the paper's table: a sender's rate, and its reservations of the link and of a processor.
type printed struct {
	aim                 int // Mbit/s
	period, slice       time.Duration
	cpuPeriod, cpuSlice time.Duration
	cpuPercent          float64
}

var table = []printed{
	{10, time.Millisecond, 110 * time.Microsecond, 10 * time.Millisecond, time.Millisecond, 10},
	{10, 2 * time.Millisecond, 220 * time.Microsecond, 20 * time.Millisecond, 2 * time.Millisecond, 10},
	{5, 2 * time.Millisecond, 110 * time.Microsecond, 20 * time.Millisecond, time.Millisecond, 5},
}

const (
	tableLine = "100mbit"
	// perByte makes 10 Mbit/s need 8 per cent of a processor for calculation. With the rest of the sender's work
	// that is nearly the 10 per cent that the paper's sender needed.
	perByte   = 64 * time.Nanosecond
	printedIs = "Table 1 as printed, run %d"
)

// asPrinted runs the table line by line: on a link of 100 Mbit/s, beside programs that use the rest of all
// processors.
func asPrinted(ctx context.Context, b *bed.Bed) (rows []row, err error) {
	pair, err := b.LinkedPair(ctx, tableLine)
	if err != nil {
		return nil, err
	}
	rx, err := b.Receiver(pair.B, testbed.ReceiverConfig{Ports: ports(), Interval: 20 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	if _, err := b.Netnice(ctx, "power", strconv.Itoa(rx.PID()), strconv.Itoa(receiving)); err != nil {
		return nil, err
	}
	runs := 10
	if b.Quick {
		runs = 1
	}
	for run := range runs {
		of, err := printedRun(ctx, b, pair, rx, fmt.Sprintf(printedIs, run+1))
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", run+1, err)
		}
		rows = append(rows, of...)
	}
	_, err = b.Netnice(ctx, "power", strconv.Itoa(rx.PID()), "0")
	return rows, err
}

func printedRun(ctx context.Context, b *bed.Bed, pair *testbed.Pair, rx *testbed.Receiver, phase string) (rows []row, err error) {
	pids := make([]int, len(table))
	for i, p := range table {
		to := netip.AddrPortFrom(pair.B4, uint16(firstPort+i))
		cmd, err := load.Calculating{To: to, Write: write, PerByte: perByte}.Start(ctx, pair.A)
		if err != nil {
			return nil, err
		}
		defer func() { _ = bed.Kill(cmd) }()
		pids[i] = cmd.Process.Pid
		if err := b.Reserve(ctx, pair.A, pids[i], p.period, p.slice, false); err != nil {
			return nil, err
		}
		_, err = b.Netnice(ctx, "reserve", "--pid", strconv.Itoa(pids[i]), "--cpu-period", p.cpuPeriod.String(), "--cpu-slice", p.cpuSlice.String())
		if err != nil {
			return nil, err
		}
	}
	for range hogs {
		hog, err := load.StartHere(load.Spin, 1, nice)
		if err != nil {
			return nil, err
		}
		defer func() { _ = hog.Close() }()
	}
	if err := testbed.Sleep(ctx, b.Length(2*time.Second, time.Second)); err != nil {
		return nil, err
	}
	const each = time.Second / 2
	d := b.Length(4*time.Second, 2*time.Second)
	from := testbed.Now()
	used := make([]float64, len(pids))
	for i, pid := range pids {
		used[i] = load.Threads(pid)
	}
	if err := testbed.Sleep(ctx, d); err != nil {
		return nil, err
	}
	span := testbed.Now().Sub(from).Seconds()
	for i, p := range table {
		r := row{Phase: phase, Aim: p.aim, Least: math.Inf(1), Reserved: p.cpuPercent, Used: (load.Threads(pids[i]) - used[i]) / span * 100}
		halves := 0
		for at := from; at.Add(each).Sub(from) <= d; at = at.Add(each) {
			half := rx.Goodput(uint16(firstPort+i), at, at.Add(each)) * headers * 8 / 1e6
			r.Least = min(r.Least, half/float64(p.aim))
			r.Sent += half
			halves++
		}
		r.Sent /= float64(halves)
		rows = append(rows, r)
	}
	return rows, nil
}
