// Package bed is the base of every experiment. It has a netnice daemon of its own, with its own socket, state and
// pins, which it starts and ends at will. It runs other programs inside namespaces, describes the machine, and saves
// figures and plots. It measures nothing.
package bed

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/verdict"
)

// Bed is the base of one experiment.
type Bed struct {
	*Daemon
	Name    string
	Out     io.Writer
	Quick   bool // a short version, for a check
	Machine Machine

	dir, docs string
	mu        sync.Mutex // of closers
	closers   []func() error
}

// Main runs an experiment as a command: flags, clean-up, exit code. The flags have the experiment's name, and those
// that the experiment defines itself.
func Main(flags *flag.FlagSet, args []string, run func(context.Context, *Bed) error) (exitCode int) {
	b := &Bed{Name: flags.Name(), Out: os.Stdout}
	program := flags.String("netnice", os.Getenv("NETNICE"), "the netnice `PROGRAM` (default $NETNICE or bin/netnice)")
	flags.StringVar(&b.dir, "out", filepath.Join("lab", "out"), "`FOLDER` for figures (JSON) and plots (SVG)")
	flags.StringVar(&b.docs, "docs", "", "also write the plots to this `FOLDER`, such as docs/img")
	flags.BoolVar(&b.Quick, "quick", false, "a short version")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if *program == "" {
		*program = filepath.Join("bin", "netnice")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := b.run(ctx, *program, flags.Args(), run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", b.Name, err)
		return 1
	}
	return 0
}

func (b *Bed) run(ctx context.Context, program string, rest []string, run func(context.Context, *Bed) error) (err error) {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if err := testbed.Privileged(); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return fmt.Errorf("make folder for figures: %w", err)
	}
	if b.Daemon, err = NewDaemon(program); err != nil {
		return err
	}
	defer func() {
		for i := len(b.closers) - 1; i >= 0; i-- {
			err = errors.Join(err, b.closers[i]())
		}
		err = errors.Join(err, b.Close())
	}()
	if b.Machine, err = describe(); err != nil {
		return err
	}
	if b.Machine.Netnice, err = b.Release(ctx); err != nil {
		return err
	}
	b.Printf("%s\n%s\n\n", b.Name, b.Machine)
	return run(ctx, b)
}

// Printf prints text for the user.
func (b *Bed) Printf(format string, args ...any) { fmt.Fprintf(b.Out, format, args...) }

// Defer has a function called when the experiment ends, last first.
func (b *Bed) Defer(fn func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closers = append(b.closers, fn)
}

// Length returns the length of a measurement: full, or quick for a check.
func (b *Bed) Length(full, quick time.Duration) time.Duration {
	if b.Quick {
		return quick
	}
	return full
}

// Pair makes two namespaces, joined by a veth pair, for as long as the
// experiment runs.
func (b *Bed) Pair() (*testbed.Pair, error) {
	p, err := testbed.NewPair()
	if err != nil {
		return nil, err
	}
	b.Defer(p.Close)
	return p, nil
}

// Senders prepares experiments on egress: it starts the daemon, and behind a pair a receiver with samples every 20
// ms at these ports (none: the default one).
func (b *Bed) Senders(ctx context.Context, ports ...testbed.Port) (*testbed.Pair, *testbed.Receiver, error) {
	if err := b.Up(ctx); err != nil {
		return nil, nil, err
	}
	pair, err := b.Pair()
	if err != nil {
		return nil, nil, err
	}
	rx, err := b.Receiver(pair.B, testbed.ReceiverConfig{Ports: ports, Interval: 20 * time.Millisecond})
	return pair, rx, err
}

// Inhabit keeps a process in a namespace for as long as the experiment runs. netnice takes an anonymous namespace
// without processes for gone, and ends the limits of its links.
func (b *Bed) Inhabit(n *testbed.NetNS) error {
	_, err := b.Start(n, "sleep", "infinity")
	return err
}

// LinkedPair starts a daemon and makes a pair. The pair's A sends packets as a wire would carry them, by a device
// that is limited to that rate.
func (b *Bed) LinkedPair(ctx context.Context, rate string) (*testbed.Pair, error) {
	if err := b.Up(ctx); err != nil {
		return nil, err
	}
	pair, err := b.Pair()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(capture.Segment(pair.A), b.Inhabit(pair.A)); err != nil {
		return nil, err
	}
	_, err = b.NetniceIn(ctx, pair.A, "link", testbed.Device, "--up", rate)
	return pair, err
}

// ShapedPair makes a pair whose A sends packets as a wire would carry them,
// shaped to that rate.
func (b *Bed) ShapedPair(shape func(n *testbed.NetNS, bytesPerSec uint64) error, bytesPerSec uint64) (*testbed.Pair, error) {
	p, err := b.Pair()
	if err != nil {
		return nil, err
	}
	if err := capture.Segment(p.A); err != nil {
		return nil, err
	}
	return p, shape(p.A, bytesPerSec)
}

// Receiver starts a receiver for as long as the experiment runs.
func (b *Bed) Receiver(n *testbed.NetNS, c testbed.ReceiverConfig) (*testbed.Receiver, error) {
	rx, err := testbed.StartReceiver(n, c)
	if err != nil {
		return nil, err
	}
	b.Defer(rx.Close)
	return rx, nil
}

// Captured starts a receiver, and the capture of all packets that arrive in its namespace.
func (b *Bed) Captured(n *testbed.NetNS) (*capture.Capture, error) {
	if _, err := b.Receiver(n, testbed.ReceiverConfig{}); err != nil {
		return nil, err
	}
	return capture.Start(n)
}

// Sender starts a sender, which ends with the experiment at the latest.
func (b *Bed) Sender(n *testbed.NetNS, c testbed.SenderConfig) (*testbed.Sender, error) {
	tx, err := testbed.StartSender(n, c)
	if err != nil {
		return nil, err
	}
	b.Defer(tx.Close)
	return tx, nil
}

// Write writes the figures to NAME.json in the folder for figures, with the
// machine and the time.
func (b *Bed) Write(figures any) error {
	text, err := json.MarshalIndent(struct {
		Version    string    `json:"version"`
		Experiment string    `json:"experiment"`
		Time       time.Time `json:"time"`
		Machine    Machine   `json:"machine"`
		Figures    any       `json:"figures"`
	}{"v1", b.Name, time.Now().UTC(), b.Machine, figures}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	path := filepath.Join(b.dir, b.Name+".json")
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	b.Printf("\n")
	for _, v := range verdict.Judge(b.Name, text) {
		b.Printf("%v\n", v)
	}
	b.Printf("figures in %s\n", path)
	return nil
}

// Draw saves the chart as NAME.svg, or NAME-PART.svg.
func (b *Bed) Draw(part string, c chart.Chart) error {
	name := b.Name
	if part != "" {
		name += "-" + part
	}
	for _, dir := range []string{b.dir, b.docs} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder for plots: %w", err)
		}
		path := filepath.Join(dir, name+".svg")
		if err := c.Save(path); err != nil {
			return err
		}
		b.Printf("plot in %s\n", path)
	}
	return nil
}

// Quads runs the measurement in rounds of A B B A, which cancels a steady drift of the machine. change brings the
// machine into a state, and measure measures once in it. Quads returns the results of measure for A and for B in
// order, two per round each. It drops a first measurement, which fills caches.
func Quads[T any](ctx context.Context, rounds int, change func(on bool) error, measure func() (T, error)) (off, on []T, err error) {
	if err := change(false); err != nil {
		return nil, nil, err
	}
	if _, err := measure(); err != nil {
		return nil, nil, err
	}
	for range rounds {
		for i, state := range []bool{false, true, true, false} {
			if err := ctx.Err(); err != nil {
				return off, on, err
			}
			if i != 2 {
				if err := change(state); err != nil {
					return off, on, err
				}
			}
			figure, err := measure()
			if err != nil {
				return off, on, err
			}
			if state {
				on = append(on, figure)
			} else {
				off = append(off, figure)
			}
		}
	}
	return off, on, nil
}
