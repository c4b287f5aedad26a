// Package e11 re-runs nlimit's Figure 7: the time until a typed byte's echo arrives while 1, 2, 4 or 8
// connections send over an uplink of 768 kbit/s. There are totals of 8, 64 and 256 KB/s, and no limit. As in the
// paper, each socket has its part of the total by the socket option. In addition, one limit on the senders' user
// stands for all, which the paper did not have. The uplink has a modem's buffer of 1 s and 10 ms of distance each
// way; the downlink has 1.5 Mbit/s.
package e11

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
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/echo"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the experiment as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int { return bed.Main(flags, args, run) }

const (
	up, down = 768e3 / 8, 1500e3 / 8 // bytes/s
	distance = 10 * time.Millisecond // one way
	pause    = 50 * time.Millisecond // between an echo and the next byte
	settle   = 2 * time.Second       // time that the senders run before
	kb       = 1 << 10
	firstUID = 64230 // users without any other process, one for each total
)

// total is a limit, and its subject.
type total struct {
	name        string
	bytesPerSec uint64 // 0 = none
	uid         uint32 // 0: each socket has its part of it
}

func totals() []total {
	t := []total{{name: "no limit"}}
	for i, rate := range []uint64{8 * kb, 64 * kb, 256 * kb} {
		name := fmt.Sprintf("%d KB/s", rate/kb)
		t = append(t, total{name + ", sockets", rate, 0}, total{name + ", user", rate, firstUID + uint32(i)})
	}
	return t
}

// figures holds the figures of one number of senders under one total.
type figures struct {
	echo.Figures
	Senders int         `json:"senders"`
	Limit   uint64      `json:"limit"`              // IP bytes/s of all senders; 0 = none
	Arrived stat.Spread `json:"arrived_per_second"` // IP bytes/s of all senders
	Dropped uint64      `json:"dropped"`            // at the uplink's buffer
	// Above says that much more arrived than the limit allows.
	Above bool `json:"above_limit,omitempty"`
}

func run(ctx context.Context, b *bed.Bed) error {
	if err := b.Up(ctx); err != nil {
		return err
	}
	length := b.Length(14*time.Second, 3*time.Second)
	var all []figures
	curves := make([]chart.Curve, len(totals()))
	for _, senders := range []int{1, 2, 4, 8} {
		found, err := together(ctx, b, senders, length)
		if err != nil {
			return err
		}
		for i, f := range found {
			b.Printf("%s; arrived %5.1f KB/s, %d dropped\n", f.Figures, f.Arrived.Mean/kb, f.Dropped)
			if f.Above {
				b.Printf("! above the limit: another netnice that is up takes the socket option, and its limit ends with it\n")
			}
			curves[i].Name = totals()[i].name
			curves[i].Points = append(curves[i].Points, chart.XY{X: float64(senders), Y: f.RTT.Median})
		}
		all = append(all, found...)
	}
	b.Printf("paper: latency grows with the senders where the link is full; at 64 KB/s it is near its least even with 8 (a figure without numbers)\n")
	if err := b.Draw("", chart.Chart{
		Title: "Echo of a typed byte beside senders on an uplink of 768 kbit/s",
		X:     "senders", Y: "ms (median)", LogY: true, YMax: 100000, Curves: curves,
	}); err != nil {
		return err
	}
	return b.Write(all)
}

// together measures that many senders under every total at the same time, each on an uplink of its own. They are
// slow and need hardly any CPU time.
func together(ctx context.Context, b *bed.Bed, senders int, length time.Duration) ([]figures, error) {
	all := totals()
	found, problems := make([]figures, len(all)), make([]error, len(all))
	var group sync.WaitGroup
	for i, t := range all {
		group.Go(func() { found[i], problems[i] = measure(ctx, b, t, senders, length) })
	}
	group.Wait()
	return found, errors.Join(problems...)
}

func measure(ctx context.Context, b *bed.Bed, t total, senders int, length time.Duration) (f figures, err error) {
	pair, err := testbed.NewDistantPair(relay.Config{
		AtoB: relay.Path{Rate: up, Buffer: up, Delay: distance},
		BtoA: relay.Path{Rate: down, Buffer: down, Delay: distance},
	})
	if err != nil {
		return f, err
	}
	b.Defer(pair.Close)
	_, err = b.Receiver(pair.B, testbed.ReceiverConfig{Ports: []testbed.Port{{Number: testbed.DefaultPort}, echo.Port()}})
	if err != nil {
		return f, err
	}
	c, err := capture.Start(pair.B)
	if err != nil {
		return f, err
	}
	stop, err := send(ctx, b, pair, t, senders)
	if err != nil {
		return f, err
	}
	begin := testbed.Now().Add(settle)
	if err := testbed.Sleep(ctx, settle); err != nil {
		return f, errors.Join(err, stop())
	}
	trips, err := echo.Measure(ctx, b, pair.A, pair.B4, pause, length)
	if err = errors.Join(err, stop()); err != nil {
		return f, err
	}
	f.Figures, f.Senders, f.Limit = echo.Of(fmt.Sprintf("%d x %s", senders, t.name), trips), senders, t.bytesPerSec
	packets, err := c.Stop()
	if err != nil {
		return f, err
	}
	f.Arrived = stat.Of(capture.Rates(packets, begin, begin.Add(length), time.Second, func(p capture.Packet) bool {
		return p.To == testbed.DefaultPort
	}))
	f.Above = t.bytesPerSec > 0 && f.Arrived.Mean > 1.2*float64(t.bytesPerSec)
	uplink, _, err := pair.Relay.Counters()
	f.Dropped = uplink.Dropped
	return f, err
}

// send starts the senders and returns a function that ends them.
func send(ctx context.Context, b *bed.Bed, pair *testbed.Pair, t total, senders int) (stop func() error, err error) {
	var ends []func() error
	endAll := func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, endAll())
		}
	}()
	if t.uid != 0 {
		if err := b.LimitUser(ctx, t.uid, t.bytesPerSec); err != nil {
			return nil, err
		}
	}
	to := netip.AddrPortFrom(pair.B4, testbed.DefaultPort)
	for range senders {
		if t.uid != 0 {
			tx, err := b.Sender(pair.A, testbed.SenderConfig{To: to.String(), UID: t.uid})
			if err != nil {
				return nil, err
			}
			ends = append(ends, func() error {
				_, err := tx.Stop() // a reset; otherwise their buffers would drain for minutes
				return err
			})
			if _, err := tx.Start(); err != nil {
				return nil, err
			}
			continue
		}
		fd, err := bed.Dial(pair.A, to, t.bytesPerSec/uint64(senders))
		if err != nil {
			return nil, err
		}
		ends = append(ends, func() error { return bed.Reset(fd) })
		go bed.Fill(fd)
	}
	return endAll, nil
}
