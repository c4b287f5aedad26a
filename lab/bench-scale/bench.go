// Package scale limits many sockets in many processes. It measures the cost of a chunk, the exactness of the
// sum, and the fairness. It also measures the time to set and to list many limits.
package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/stat"
)

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	rate := flags.Float64("rate", 100e6, "`BYTES` per second, of all together")
	interval := flags.Duration("interval", 6*time.Second, "of one measurement, after 2 s")
	nodes := flags.Int("limits", 1000, "time `N` limits; 0 = do not")
	only := regexp.MustCompile("")
	flags.Func("only", "measure crowds whose name, such as '10000 x 100 user', matches this `REGEXP`", func(v string) (err error) {
		only, err = regexp.Compile(v)
		return err
	})
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error {
		return run(ctx, b, *rate, *interval, *nodes, only)
	})
}

// cell is a crowd and its figures.
type cell struct {
	Sockets   int    `json:"sockets"`
	Processes int    `json:"processes"`
	On        string `json:"limit_on"` // "user": one for all; "process": each its part; "htb": HTB on the device

	Ratio       float64             `json:"ip_over_limit"`
	PerSecond   stat.Spread         `json:"ip_over_limit_per_second"`
	JainSockets float64             `json:"jain_sockets"`
	JainProcs   float64             `json:"jain_processes"`
	BPFPerMB    float64             `json:"bpf_us_per_mb"`
	BPFPart     float64             `json:"bpf_part_of_one_cpu"`
	MachineGB   float64             `json:"machine_cpu_seconds_per_gb"`
	Programs    map[string]bed.Cost `json:"bpf_programs"`
	OwnRatio    float64             `json:"charged_over_limit"` // netnice's own count
	Faults      map[string]uint64   `json:"faults,omitempty"`   // faults that failed open, in all
	LimitTook   float64             `json:"limits_set_in_seconds"`
	LimitCPU    float64             `json:"limits_set_in_daemon_cpu_seconds"`

	rate     float64
	interval time.Duration
}

// figures holds the figures of all cells.
type figures struct {
	Rate  float64 `json:"limit_bytes_per_sec"`
	Cells []*cell `json:"cells"`
	Times times   `json:"times"`
}

func run(ctx context.Context, b *bed.Bed, rate float64, interval time.Duration, nodes int, only *regexp.Regexp) error {
	cells := []*cell{
		{Sockets: 1, Processes: 1, On: onUser},
		{Sockets: 100, Processes: 1, On: onUser},
		{Sockets: 100, Processes: 100, On: onUser},
		{Sockets: 1000, Processes: 1000, On: onUser},
		{Sockets: 10000, Processes: 1, On: onUser},
		{Sockets: 10000, Processes: 100, On: onUser},
		{Sockets: 10000, Processes: 1000, On: onUser},
		{Sockets: 100, Processes: 100, On: onProcess},
		{Sockets: 1000, Processes: 1000, On: onProcess},
		{Sockets: 10000, Processes: 1000, On: onProcess},
		{Sockets: 10000, Processes: 1, On: onDevice},
		{Sockets: 10000, Processes: 100, On: onDevice},
		{Sockets: 10000, Processes: 1000, On: onDevice},
	}
	cells = slices.DeleteFunc(cells, func(c *cell) bool {
		return !only.MatchString(fmt.Sprintf("%d x %d %s", c.Sockets, c.Processes, c.On))
	})
	if b.Quick {
		cells, interval, nodes = cells[:min(3, len(cells))], 2*time.Second, min(nodes, 100)
	}
	// Each socket needs a descriptor here.
	limit := unix.Rlimit{Cur: 20000, Max: 20000}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("allow 20000 descriptors: %w", err)
	}
	f := figures{Rate: rate, Cells: cells}
	b.Printf("limit of all together %.0f MB/s (IP bytes)\n%7s %9s %-10s %9s %23s %9s %9s %9s %9s %8s %9s\n", rate/1e6,
		"sockets", "processes", "limit on", "of limit", "per second min..max", "charged", "Jain sock", "Jain proc", "BPF us/MB", "1 CPU", "CPU s/GB")
	for _, c := range cells {
		c.rate, c.interval = rate, interval
		if err := c.measure(ctx, b); err != nil {
			return fmt.Errorf("%d sockets in %d processes: %w", c.Sockets, c.Processes, err)
		}
		b.Printf("%7d %9d %-10s %9.4f %11.4f..%10.4f %9.4f %9.4f %9.4f %9.1f %7.2f%% %9.3f", c.Sockets, c.Processes, c.On,
			c.Ratio, c.PerSecond.Min, c.PerSecond.Max, c.OwnRatio, c.JainSockets, c.JainProcs, c.BPFPerMB, 100*c.BPFPart, c.MachineGB)
		for _, name := range []string{"sockops", "egress"} {
			if p := c.Programs[name]; p.Runs > 0 {
				b.Printf("  %s %d x %d ns", name, p.Runs, p.Time.Nanoseconds()/int64(p.Runs))
			}
		}
		for name, n := range c.Faults {
			if n > 0 {
				b.Printf("  %s: %d", name, n)
			}
		}
		if c.On == onProcess {
			b.Printf("  limits set in %.2f s, %.2f s of the daemon's CPU time", c.LimitTook, c.LimitCPU)
		}
		b.Printf("\n")
	}
	if nodes == 0 {
		return b.Write(f)
	}
	var err error
	if f.Times, err = measureTimes(ctx, b, nodes); err != nil {
		return err
	}
	return b.Write(f)
}

// These are the subjects of limits.
const (
	onUser    = "user"
	onProcess = "process"
	onDevice  = "htb" // not netnice: the performance of two CPUs with such a crowd
	crowdUID  = 64211 // a user without any other process
)

// ipFactor is IP bytes per byte of payload in full segments of IPv4 with time
// stamps.
const ipFactor = 1500.0 / 1448

func (c *cell) measure(ctx context.Context, b *bed.Bed) (err error) {
	if err := b.Up(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Down(ctx)) }()
	pair, err := testbed.NewPair()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	at := netip.AddrPortFrom(pair.B4, testbed.DefaultPort)
	s, err := newSink(pair.B, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	switch c.On {
	case onUser:
		err = b.LimitUser(ctx, crowdUID, uint64(c.rate))
	case onDevice:
		err = testbed.ShapeHTB(pair.A, uint64(c.rate)) // goes with the namespace
	}
	if err != nil {
		return err
	}
	var crowd []*member
	defer func() {
		for _, m := range crowd {
			err = errors.Join(err, m.end())
		}
	}()
	owner := make(map[uint16]int) // process of each port
	for i := range c.Processes {
		m, err := enlist(pair.A, at, c.Sockets/c.Processes, crowdUID)
		if err != nil {
			return err
		}
		crowd = append(crowd, m)
		if err := m.ready(); err != nil {
			return err
		}
		ports, err := s.accepted(ctx, len(owner)+c.Sockets/c.Processes)
		if err != nil {
			return err
		}
		for port := range ports {
			if _, known := owner[port]; !known {
				owner[port] = i
			}
		}
	}
	if c.On == onProcess {
		begin := testbed.Now()
		before, err := b.CPU()
		if err != nil {
			return err
		}
		for _, m := range crowd {
			if err := setByClient(ctx, b, m.cmd.Process.Pid, uint64(c.rate)/uint64(c.Processes)); err != nil {
				return err
			}
		}
		c.LimitTook = testbed.Now().Sub(begin).Seconds()
		after, err := b.CPU()
		if err != nil {
			return err
		}
		c.LimitCPU = after - before
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("switch BPF statistics on: %w", err)
	}
	defer stats.Close()
	for _, m := range crowd {
		if err := m.start(); err != nil {
			return err
		}
	}
	if err := testbed.Sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	return c.watch(ctx, b, s, owner)
}

// watch counts for the interval.
func (c *cell) watch(ctx context.Context, b *bed.Bed, s *sink, owner map[uint16]int) error {
	costs, err := b.Costs()
	if err != nil {
		return err
	}
	machine, err := testbed.ReadMachineCPU()
	if err != nil {
		return err
	}
	charged, err := charges(ctx, b)
	if err != nil {
		return err
	}
	chargedAt := testbed.Now() // on a busy machine the daemon's answer takes a while, here and at the end
	first, begin := s.counts(), testbed.Now()
	var seconds []float64
	last, since := first, begin
	for range int(c.interval / time.Second) {
		if err := testbed.Sleep(ctx, since.Add(time.Second).Sub(testbed.Now())); err != nil {
			return err
		}
		counts, now := s.counts(), testbed.Now()
		seconds = append(seconds, (total(counts)-total(last))*ipFactor/now.Sub(since).Seconds()/c.rate)
		last, since = counts, now
	}
	after, err := testbed.ReadMachineCPU()
	if err != nil {
		return err
	}
	end, err := b.Costs()
	if err != nil {
		return err
	}
	elapsed := since.Sub(begin).Seconds()
	bytes := total(last) - total(first)
	chargedLater, err := charges(ctx, b)
	if err != nil {
		return err
	}
	c.OwnRatio = float64(chargedLater-charged) / testbed.Now().Sub(chargedAt).Seconds() / c.rate
	c.Ratio, c.PerSecond = bytes*ipFactor/elapsed/c.rate, stat.Of(seconds)
	c.MachineGB = after.Sub(machine).Busy / (bytes / 1e9)
	c.Programs = bed.Sub(end, costs)
	var used time.Duration
	for _, p := range c.Programs {
		used += p.Time
	}
	c.BPFPerMB = float64(used.Microseconds()) / (bytes / 1e6)
	c.BPFPart = used.Seconds() / elapsed
	status, err := b.Client.Status(ctx)
	if err != nil {
		return fmt.Errorf("read the daemon's counters: %w", err)
	}
	c.Faults = status.Counters
	processes := make([]float64, c.Processes)
	sockets := make([]float64, 0, len(last))
	for port, n := range last {
		got := float64(n - first[port])
		sockets = append(sockets, got)
		processes[owner[port]] += got
	}
	c.JainSockets, c.JainProcs = testbed.Jain(sockets), testbed.Jain(processes)
	return nil
}

// charges returns the IP bytes that netnice has charged to all of its limits.
func charges(ctx context.Context, b *bed.Bed) (sum uint64, err error) {
	list, err := b.Client.Nodes(ctx)
	if err != nil {
		return 0, fmt.Errorf("list limits: %w", err)
	}
	for _, n := range list.Nodes {
		sum += n.Up.Bytes
	}
	return sum, nil
}

func total(counts map[uint16]uint64) float64 {
	var sum uint64
	for _, n := range counts {
		sum += n
	}
	return float64(sum)
}
