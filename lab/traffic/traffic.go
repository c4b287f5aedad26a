// Package traffic runs senders and a receiver in two namespaces joined by a veth pair, runs commands at given times,
// and prints the received traffic. It is the tool to examine a limit with.
//
//	go run ./lab traffic -n 4 -cc bbr -t 5s \
//	    -at 1s='netnice set --pid $PID --up 10MB/s' -at 3s='netnice unset --pid $PID'
//	go run ./lab traffic -delay 50ms -loss 0.01 -rate 20e6 -before 'netnice set --pid $PID --up 10MB/s'
//
// Commands run in a shell outside the namespaces with PID, PID1, PID2, ... (the
// senders; PID is PID1), RPID (the receiver), NS_A and NS_B (paths of the
// namespaces, as for nsenter --net=) in their environment. It needs root.
package traffic

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// Main runs the command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	o, err := parse(flags, args)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "traffic:", err)
		}
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		return 1
	}
	return 0
}

// options of the command line.
type options struct {
	sender    testbed.SenderConfig
	processes int
	ipv6      bool
	duration  time.Duration
	interval  time.Duration
	htb, tbf  float64
	path      relay.Config
	far       bool // over a relay
	before    []string
	at        []timed
	fork      time.Duration
	forkConns int
	json      string
	quiet     bool
}

// timed is a command and its time, counted from the start of traffic.
type timed struct {
	after   time.Duration
	command string
}

func parse(f *flag.FlagSet, args []string) (options, error) {
	var o options
	f.IntVar(&o.sender.Connections, "n", 1, "connections per sender")
	f.IntVar(&o.processes, "procs", 1, "sender processes, each with -n connections to a port of its own")
	f.StringVar(&o.sender.Congestion, "cc", "cubic", "congestion control: cubic, bbr, reno")
	f.DurationVar(&o.duration, "t", 5*time.Second, "how long to send")
	f.DurationVar(&o.interval, "interval", 100*time.Millisecond, "between lines")
	f.BoolVar(&o.ipv6, "6", false, "IPv6")
	f.StringVar((*string)(&o.sender.Mode), "mode", "bulk", "bulk, bigsend (one blocking send of -bytes or 1 GB), request, short")
	f.IntVar(&o.sender.WriteSize, "write", 64<<10, "bytes per write, bulk")
	f.Int64Var(&o.sender.Bytes, "bytes", 0, "bytes per connection, 0 = endless")
	f.IntVar(&o.sender.ShortBytes, "short-bytes", 13000, "bytes per short connection")
	f.BoolVar(&o.sender.ShortWait, "short-wait", false, "a short connection waits until everything is received")
	f.IntVar(&o.sender.RequestBytes, "request-bytes", 600, "bytes per request")
	f.DurationVar(&o.sender.Pause, "pause", 0, "between a reply and the next request")
	f.Func("uid", "run the senders as this user", func(v string) error {
		_, err := fmt.Sscanf(v, "%d", &o.sender.UID)
		return err
	})
	f.Float64Var(&o.htb, "htb", 0, "HTB on the sending end, link bytes/s (1e6)")
	f.Float64Var(&o.tbf, "tbf", 0, "TBF on the sending end, link bytes/s")
	distance(f, &o)
	f.Func("before", "`COMMAND` to run before the connections open; may be repeated", func(v string) error {
		o.before = append(o.before, v)
		return nil
	})
	f.Func("at", "`TIME=COMMAND` to run at that time after the start; may be repeated", func(v string) error {
		after, command, ok := strings.Cut(v, "=")
		d, err := time.ParseDuration(after)
		if err != nil || !ok {
			return errors.New("want TIME=COMMAND, such as 1s='netnice set --pid $PID --up 1MB/s'")
		}
		o.at = append(o.at, timed{d, command})
		return nil
	})
	f.DurationVar(&o.fork, "fork", 0, "when the first sender starts a child that sends too, 0 = never")
	f.IntVar(&o.forkConns, "fork-n", 1, "connections of that child")
	f.StringVar(&o.json, "json", "", "also write the figures to this `FILE`")
	f.BoolVar(&o.quiet, "q", false, "no line per interval")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.far = o.path != relay.Config{}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.duration <= 0 || o.interval < 10*time.Millisecond:
		return o, errors.New("-t must be positive, -interval at least 10ms")
	case o.processes < 1 || o.sender.Connections < 1:
		return o, errors.New("-procs and -n must be at least 1")
	}
	return o, nil
}

// distance adds the flags that put a relay between the namespaces.
func distance(f *flag.FlagSet, o *options) {
	both := func(set func(*relay.Path, time.Duration)) func(string) error {
		return func(v string) error {
			d, err := time.ParseDuration(v)
			set(&o.path.AtoB, d)
			set(&o.path.BtoA, d)
			return err
		}
	}
	f.Func("delay", "`TIME` from end to end, each way, through a relay", both(func(p *relay.Path, d time.Duration) { p.Delay = d }))
	f.Func("jitter", "the delay wanders between -delay and this `TIME` more", both(func(p *relay.Path, d time.Duration) { p.Jitter = d }))
	f.Float64Var(&o.path.AtoB.Loss, "loss", 0, "part of the packets that the path loses, 0..1")
	f.Float64Var(&o.path.BtoA.Loss, "back-loss", 0, "the same of what comes back")
	rate := func(r *uint64) func(string) error {
		return func(v string) error {
			b, err := strconv.ParseFloat(v, 64)
			*r = uint64(max(b, 0))
			return err
		}
	}
	f.Func("rate", "of the path, IP `BYTES/S` (1e6)", rate(&o.path.AtoB.Rate))
	f.Func("back-rate", "the same of the way back", rate(&o.path.BtoA.Rate))
	f.IntVar(&o.path.AtoB.Buffer, "buffer", 0, "of the path at its -rate, `BYTES`; 0 = 100 ms of the rate")
	f.Uint64Var(&o.path.Seed, "seed", 0, "of loss and jitter")
}
