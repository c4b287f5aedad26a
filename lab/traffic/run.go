package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// firstPort is the port of the first sender; the next ones follow, the child's
// is the last.
const firstPort = testbed.DefaultPort

// lab holds one run's namespaces and processes.
type lab struct {
	o       options
	out     io.Writer
	pair    *testbed.Pair
	rx      *testbed.Receiver
	senders []*testbed.Sender
	to      netip.Addr
	env     []string
}

// shared lets commands write while lines are printed.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(b)
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	out = &shared{to: out}
	l := &lab{o: o, out: out}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.setUp(); err != nil {
		return err
	}
	for _, c := range o.before {
		if err := l.command(ctx, c); err != nil {
			return err
		}
	}
	r, err := l.traffic(ctx)
	if err != nil {
		return err
	}
	r.print(out)
	if o.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.WriteFile(o.json, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

func (l *lab) setUp() error {
	if err := testbed.Privileged(); err != nil {
		return err
	}
	var err error
	if l.o.far {
		l.pair, err = testbed.NewDistantPair(l.o.path)
	} else {
		l.pair, err = testbed.NewPair()
	}
	if err != nil {
		return err
	}
	if l.to = l.pair.B4; l.o.ipv6 {
		l.to = l.pair.B6
	}
	if l.o.htb > 0 {
		if err := testbed.ShapeHTB(l.pair.A, uint64(l.o.htb)); err != nil {
			return err
		}
	}
	if l.o.tbf > 0 {
		if err := testbed.ShapeTBF(l.pair.A, uint64(l.o.tbf)); err != nil {
			return err
		}
	}
	cfg := testbed.ReceiverConfig{Interval: min(l.o.interval/2, 50*time.Millisecond)}
	for i := range l.o.processes + 1 {
		p := testbed.Port{Number: firstPort + uint16(i)}
		if l.o.sender.Mode == testbed.Request {
			p.RequestBytes, p.ReplyBytes = l.o.sender.RequestBytes, 100
		}
		cfg.Ports = append(cfg.Ports, p)
	}
	if l.rx, err = testbed.StartReceiver(l.pair.B, cfg); err != nil {
		return err
	}
	l.env = append(os.Environ(),
		fmt.Sprintf("RPID=%d", l.rx.PID()), "NS_A="+l.pair.A.Path(), "NS_B="+l.pair.B.Path())
	for i := range l.o.processes {
		cfg := l.o.sender
		cfg.To = l.port(i)
		s, err := testbed.StartSender(l.pair.A, cfg)
		if err != nil {
			return err
		}
		l.senders = append(l.senders, s)
		l.env = append(l.env, fmt.Sprintf("PID%d=%d", i+1, s.PID()))
	}
	l.env = append(l.env, fmt.Sprintf("PID=%d", l.senders[0].PID()))
	return nil
}

// ports returns the number of receiving ports: one for each sender, and one for the child if there is one.
func (l *lab) ports() int {
	if l.o.fork > 0 {
		return l.o.processes + 1
	}
	return l.o.processes
}

// port returns the address that the i-th sender sends to.
func (l *lab) port(i int) string {
	return netip.AddrPortFrom(l.to, firstPort+uint16(i)).String()
}

func (l *lab) close() error {
	var errs []error
	for _, s := range l.senders {
		errs = append(errs, s.Close())
	}
	if l.rx != nil {
		errs = append(errs, l.rx.Close())
	}
	if l.pair != nil {
		errs = append(errs, l.pair.Close())
	}
	return errors.Join(errs...)
}

// command runs a shell command outside the namespaces.
func (l *lab) command(ctx context.Context, text string) error {
	begin := time.Now()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	cmd.Env, cmd.Stdout, cmd.Stderr = l.env, l.out, l.out
	err := cmd.Run()
	fmt.Fprintf(l.out, "        $ %s   (%.1f ms)\n", text, time.Since(begin).Seconds()*1e3)
	if err != nil {
		return fmt.Errorf("command %q: %w", text, err)
	}
	return nil
}

// traffic starts the senders, runs the commands at their times, and stops.
func (l *lab) traffic(ctx context.Context) (*result, error) {
	for _, s := range l.senders {
		if err := s.Connect(); err != nil {
			return nil, err
		}
	}
	machine, err := testbed.ReadMachineCPU()
	if err != nil {
		return nil, err
	}
	rxCPU, err := l.rx.CPUSeconds()
	if err != nil {
		return nil, err
	}
	begin := testbed.Now()
	for _, s := range l.senders {
		if _, err := s.Start(); err != nil {
			return nil, err
		}
	}
	if err := l.watch(ctx, begin); err != nil {
		return nil, err
	}
	end := testbed.Now()
	r := &result{begin: begin, Seconds: end.Sub(begin).Seconds(), rx: l.rx, ports: l.ports()}
	after, err := testbed.ReadMachineCPU()
	if err != nil {
		return nil, err
	}
	rxAfter, err := l.rx.CPUSeconds()
	if err != nil {
		return nil, err
	}
	r.MachineCPU, r.ReceiverCPU = after.Sub(machine), rxAfter-rxCPU
	for _, s := range l.senders {
		report, err := s.Stop()
		if err != nil {
			return nil, err
		}
		r.Reports = append(r.Reports, report)
		r.SenderCPU += report.TotalCPU()
		r.rtt = append(r.rtt, s.RTT(begin, end)...)
		r.latency = append(r.latency, s.Latency(begin, end)...)
	}
	r.end = end
	if l.pair.Relay != nil {
		to, back, err := l.pair.Relay.Counters()
		if err != nil {
			return nil, err
		}
		r.Relay = []relay.Counters{to, back}
	}
	r.compute()
	return r, nil
}

// watch prints a line per interval and runs the timed commands beside it.
func (l *lab) watch(ctx context.Context, begin testbed.Instant) error {
	events := slices.Clone(l.o.at)
	failed := make(chan error, len(events)+1)
	for _, e := range events {
		time.AfterFunc(e.after, func() { failed <- l.command(ctx, e.command) })
	}
	if l.o.fork > 0 {
		time.AfterFunc(l.o.fork, func() {
			cfg := l.o.sender
			cfg.To, cfg.Connections, cfg.UID = l.port(l.o.processes), l.o.forkConns, 0
			pid, err := l.senders[0].Fork(cfg)
			fmt.Fprintf(l.out, "        child %d sends\n", pid)
			failed <- err
		})
	}
	stop := time.NewTimer(l.o.duration)
	defer stop.Stop()
	tick := time.NewTicker(l.o.interval)
	defer tick.Stop()
	line := begin
	if !l.o.quiet {
		fmt.Fprintln(l.out, "    time  payload, MB/s  (and of each process)")
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			if err != nil {
				return err
			}
		case <-stop.C:
			l.lines(begin, line)
			return nil
		case <-tick.C:
			line = l.lines(begin, line)
		}
	}
}

// lines prints the intervals whose samples have arrived, and returns the start of the next one.
func (l *lab) lines(begin, next testbed.Instant) testbed.Instant {
	samples := l.rx.Samples()
	for len(samples) > 0 && samples[len(samples)-1].T >= next.Add(l.o.interval) {
		to := next.Add(l.o.interval)
		if !l.o.quiet {
			fmt.Fprintf(l.out, "%6.2f s  %10.3f", to.Sub(begin).Seconds(), l.rx.Goodput(0, next, to)/1e6)
			for i := 0; l.ports() > 1 && i < l.ports(); i++ {
				fmt.Fprintf(l.out, "  %9.3f", l.rx.Goodput(firstPort+uint16(i), next, to)/1e6)
			}
			fmt.Fprintln(l.out)
		}
		next = to
	}
	return next
}
