// Package e29 re-runs nlimit's statements on lines of different speed (its section 5.3). It measures the
// time until a typed byte's echo arrives on an idle line, during a transfer, and during a limited transfer. A
// computer fills a cable modem's queue (120 kbit/s) far faster than that empties, so a limit gains very much. On DSL
// (768 kbit/s) the same queue is six times shorter in time. On a LAN of 100 Mbit/s the computer sends no faster than
// it generates data; there is no queue, and a limit changes little.
package e29

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/echo"
	"github.com/netnice/netnice/lab/internal/load"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	return bed.Main(flags, args, run)
}

const (
	down        = 1500e3 / 8            // bytes/s of each modem
	distance    = 10 * time.Millisecond // one way, behind a modem
	modemBuffer = 32 << 10              // bytes of each modem's queue
	lan         = 100e6 / 8             // bytes/s
	pause       = 50 * time.Millisecond // between an echo and the next byte
	settle      = 5 * time.Second       // a modem's queue is full after that time of the transfer
	connections = 4
	fullPacket  = 1500 // bytes
	// generating is the time that the LAN's sender takes for each byte, so that it is slower than the LAN.
	generating  = load.PerByte * 5 / 4
	writeAtOnce = 2048 // bytes
)

// state is the state of the line during the echo.
type state string

const (
	idle      state = "idle"
	saturated state = "saturated"
	limited   state = "limited"
)

// figures holds the figures of one line in one state.
type figures struct {
	echo.Figures
	Limit    uint64  `json:"limit"`     // IP bytes/s; 0 = none
	PacketMS float64 `json:"packet_ms"` // duration of a full packet on the line
}

// modem is a line behind a modem.
type modem struct {
	name        string
	bytesPerSec uint64
}

func run(ctx context.Context, b *bed.Bed) error {
	if err := b.Up(ctx); err != nil {
		return err
	}
	length := b.Length(25*time.Second, 5*time.Second)
	all, err := modems(ctx, b, length, modem{"cable modem", 120e3 / 8}, modem{"DSL", 768e3 / 8})
	if err != nil {
		return err
	}
	for _, s := range []state{idle, saturated, limited} { // one after the other: they take processors
		f, err := measureLAN(ctx, b, s, length/2)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	c := chart.Chart{Title: "Echo of a typed byte: idle, beside a transfer, beside a limited one", X: "state", Y: "ms (median)", LogY: true, YMax: 100000}
	for i, f := range all {
		b.Printf("%s; a packet takes %.1f ms\n", f.Figures, f.PacketMS)
		if i%3 == 0 {
			c.Curves = append(c.Curves, chart.Curve{Name: []string{"cable modem", "DSL", "LAN"}[i/3]})
		}
		points := &c.Curves[i/3].Points
		*points = append(*points, chart.XY{X: float64(i % 3), Y: f.RTT.Median})
	}
	b.Printf("paper: on the cable modem massive gains by a limit; on DSL the transfer adds less; on the LAN the latency is relatively constant (no figures)\n")
	if err := b.Draw("", c); err != nil {
		return err
	}
	return b.Write(all)
}

// modems measures lines in all states at the same time: they are slow, and need hardly any processor time.
func modems(ctx context.Context, b *bed.Bed, length time.Duration, list ...modem) ([]figures, error) {
	states := []state{idle, saturated, limited}
	found, problems := make([]figures, len(list)*len(states)), make([]error, len(list)*len(states))
	var group sync.WaitGroup
	for i := range found {
		group.Go(func() {
			found[i], problems[i] = measureModem(ctx, b, list[i/len(states)], states[i%len(states)], length)
		})
	}
	group.Wait()
	return found, errors.Join(problems...)
}

func measureModem(ctx context.Context, b *bed.Bed, m modem, s state, length time.Duration) (f figures, err error) {
	pair, err := testbed.NewDistantPair(relay.Config{
		AtoB: relay.Path{Rate: m.bytesPerSec, Buffer: modemBuffer, Delay: distance},
		BtoA: relay.Path{Rate: down, Buffer: modemBuffer, Delay: distance},
	})
	if err != nil {
		return f, err
	}
	b.Defer(pair.Close)
	f.PacketMS = fullPacket / float64(m.bytesPerSec) * 1e3
	if s == limited {
		f.Limit = m.bytesPerSec * 9 / 10
	}
	err = f.measure(ctx, b, pair, m.name, s, length, func() (end func() error, err error) {
		tx, err := b.Sender(pair.A, testbed.SenderConfig{To: sink(pair), Connections: connections})
		if err != nil {
			return nil, err
		}
		end = func() error {
			_, err := tx.Stop()
			return err
		}
		if f.Limit > 0 {
			if err := b.LimitPID(ctx, tx.PID(), f.Limit); err != nil {
				return end, err
			}
		}
		_, err = tx.Start()
		return end, err
	})
	return f, err
}

func measureLAN(ctx context.Context, b *bed.Bed, s state, length time.Duration) (f figures, err error) {
	pair, err := b.Pair()
	if err != nil {
		return f, err
	}
	if err := testbed.ShapeHTB(pair.A, lan); err != nil {
		return f, err
	}
	f.PacketMS = fullPacket / float64(lan) * 1e3
	if s == limited {
		f.Limit = lan / 2
	}
	err = f.measure(ctx, b, pair, "LAN", s, length, func() (end func() error, err error) {
		cmd, err := load.Calculating{To: netip.MustParseAddrPort(sink(pair)), Write: writeAtOnce, PerByte: generating}.Start(ctx, pair.A)
		if err != nil {
			return nil, err
		}
		if f.Limit > 0 {
			err = b.LimitPID(ctx, cmd.Process.Pid, f.Limit)
		}
		return func() error { return bed.Kill(cmd) }, err
	})
	return f, err
}

// sink returns the destination of transfers.
func sink(pair *testbed.Pair) string {
	return netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String()
}

// measure starts a transfer, unless the line is to be idle, and measures echoes after a while. Then it ends the
// transfer.
func (f *figures) measure(ctx context.Context, b *bed.Bed, pair *testbed.Pair, line string, s state, length time.Duration, start func() (end func() error, err error)) (err error) {
	_, err = b.Receiver(pair.B, testbed.ReceiverConfig{Ports: []testbed.Port{{Number: testbed.DefaultPort}, echo.Port()}})
	if err != nil {
		return err
	}
	if s != idle {
		end, err := start()
		if end != nil {
			defer func() { err = errors.Join(err, end()) }()
		}
		if err != nil {
			return err
		}
	}
	if err := testbed.Sleep(ctx, settle); err != nil {
		return err
	}
	trips, err := echo.Measure(ctx, b, pair.A, pair.B4, pause, length)
	f.Figures = echo.Of(fmt.Sprintf("%s, %s", line, s), trips)
	return err
}
