// Package e22 re-runs Nemesis' Table 1, scaled until it matters. Three senders have to send 400, 400 and 200
// Mbit/s, in writes of 2 KB, next to four programs of nice -10 that use all processors. They run with limits on their
// rates only, and with the processors reserved by --cpu auto. A second part runs the table as printed: its rates,
// periods and slices on a link of 100 Mbit/s. Its senders need as much of a processor as the paper's did. The
// receiver, which stands for another computer, has 70 per cent of a processor throughout.
package e22

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/load"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

const (
	hogs, nice = 4, -10
	write      = 2048
	receiving  = 70 // per cent of a processor
	firstPort  = testbed.DefaultPort
)

// headers are the IP bytes for a byte of payload, at an MSS of 1448.
const headers = 1500.0 / 1448

var aims = []int{400, 400, 200} // Mbit/s

// row is one sender in one phase.
type row struct {
	Phase string  `json:"phase"`
	Aim   int     `json:"aim_mbit_per_sec"`
	Sent  float64 `json:"mbit_per_sec"` // IP bytes as netnice counts: payload and 52 bytes of headers for each segment
	Least float64 `json:"least_second_over_aim"`
	// Reserved and Used are in per cent of a processor.
	Reserved float64 `json:"reserved_percent"`
	Used     float64 `json:"used_percent"`
	seconds  []float64
}

func run(ctx context.Context, b *bed.Bed) error {
	pair, rx, err := b.Senders(ctx, ports()...)
	if err != nil {
		return err
	}
	// The receiver stands for another computer, where no program here keeps it from receiving.
	if _, err := b.Netnice(ctx, "power", strconv.Itoa(rx.PID()), strconv.Itoa(receiving)); err != nil {
		return err
	}
	var rows []row
	b.Printf("%-34s %6s %10s %10s %10s %8s\n", "phase", "aim", "Mbit/s", "least s", "reserved", "used")
	for _, phase := range []struct {
		name  string
		hogs  int
		force bool
	}{{"alone, limits only", 0, false}, {"beside four hogs, limits only", hogs, false}, {"beside four hogs, --cpu auto", hogs, true}} {
		of, err := measure(ctx, b, pair, rx, phase.name, phase.hogs, phase.force)
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		for _, r := range of {
			b.Printf("%-34s %6d %10.1f %10.3f %9.1f%% %7.1f%%\n", r.Phase, r.Aim, r.Sent, r.Least, r.Reserved, r.Used)
		}
		rows = append(rows, of...)
	}
	of, err := asPrinted(ctx, b)
	if err != nil {
		return err
	}
	for _, r := range of {
		b.Printf("%-34s %6d %10.1f %10.3f %9.1f%% %7.1f%%\n", r.Phase, r.Aim, r.Sent, r.Least, r.Reserved, r.Used)
	}
	b.Printf("paper: 10.1, 10.1 and 5.1 of 10, 10 and 5 Mbit/s with reservations\n")
	c := chart.Chart{Title: "Three senders beside four programs that want all processors", X: "seconds", Y: "Mbit/s"}
	for _, r := range rows {
		if r.Phase == rows[0].Phase {
			continue
		}
		curve := chart.Curve{Name: fmt.Sprintf("%d, %s", r.Aim, r.Phase[len("beside four hogs, "):])}
		for i, v := range r.seconds {
			curve.Points = append(curve.Points, chart.XY{X: float64(i), Y: v})
		}
		c.Curves = append(c.Curves, curve)
	}
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(append(rows, of...))
}

func ports() (list []testbed.Port) {
	for i := range aims {
		list = append(list, testbed.Port{Number: uint16(firstPort + i)})
	}
	return list
}

func measure(ctx context.Context, b *bed.Bed, pair *testbed.Pair, rx *testbed.Receiver, phase string, beside int, auto bool) (rows []row, err error) {
	for range beside {
		hog, err := load.StartHere(load.Spin, 1, nice)
		if err != nil {
			return nil, err
		}
		defer func() { _ = hog.Close() }()
	}
	var senders []*testbed.Sender
	for i, aim := range aims {
		port := uint16(firstPort + i)
		tx, err := testbed.StartSender(pair.A, testbed.SenderConfig{To: netip.AddrPortFrom(pair.B4, port).String(), WriteSize: write})
		if err != nil {
			return nil, err
		}
		defer tx.Close()
		senders = append(senders, tx)
		if _, err := tx.Start(); err != nil {
			return nil, err
		}
		args := []string{"set", "--pid", strconv.Itoa(tx.PID()), "--up", fmt.Sprintf("%dmbit", aim)}
		if auto {
			args = []string{"reserve", "--pid", strconv.Itoa(tx.PID()), "--rate", fmt.Sprintf("%dmbit", aim), "--cpu", "auto"}
		}
		if _, err := b.Netnice(ctx, args...); err != nil {
			return nil, err
		}
	}
	if err := testbed.Sleep(ctx, b.Length(8*time.Second, 4*time.Second)); err != nil {
		return nil, err
	}
	d := b.Length(10*time.Second, 3*time.Second)
	from := testbed.Now()
	used := make([]float64, len(aims))
	for i, tx := range senders {
		used[i] = load.Threads(tx.PID())
	}
	if err := testbed.Sleep(ctx, d); err != nil {
		return nil, err
	}
	for i, aim := range aims {
		port := uint16(firstPort + i)
		now := load.Threads(senders[i].PID())
		r := row{Phase: phase, Aim: aim, Least: math.Inf(1), Used: (now - used[i]) / testbed.Now().Sub(from).Seconds() * 100}
		for at := from; at.Add(time.Second).Sub(from) <= d; at = at.Add(time.Second) {
			second := rx.Goodput(port, at, at.Add(time.Second)) * headers * 8 / 1e6
			r.seconds = append(r.seconds, second)
			r.Least = min(r.Least, second/float64(aim))
			r.Sent += second
		}
		r.Sent /= float64(len(r.seconds))
		rows = append(rows, r)
	}
	return rows, reserved(ctx, b, senders, rows)
}

// reserved records the reservations of the senders.
func reserved(ctx context.Context, b *bed.Bed, senders []*testbed.Sender, rows []row) error {
	text, err := b.Netnice(ctx, "power", "--json")
	if err != nil {
		return err
	}
	var list api.PowerList
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("read netnice power: %w", err)
	}
	for _, p := range list.Powers {
		for i, tx := range senders {
			if p.PID == tx.PID() {
				rows[i].Reserved = float64(p.SliceNS) / float64(p.PeriodNS) * 100
			}
		}
	}
	return nil
}
