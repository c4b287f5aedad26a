// Package probe measures paths through token buckets like netnice probe, beside no, constant, Poisson and TCP
// traffic. It compares the results with the capacity of the path.
package probe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/routed"
)

type options struct {
	all   bool
	only  string
	check bool
}

// Main runs the bench as a command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	var o options
	flags.BoolVar(&o.all, "all", false, "every rate, bucket and traffic (an hour)")
	flags.StringVar(&o.only, "only", "", "only cells whose name matches this `REGEXP`")
	flags.BoolVar(&o.check, "check", false, "exit with 1 if a cell misses its criterion")
	return bed.Main(flags, args, func(ctx context.Context, b *bed.Bed) error { return run(ctx, b, o) })
}

// cell is a measurement.
type cell struct {
	rate  float64 // rate of the bottleneck, IP bytes/s
	burst int     // the token bucket's depth, bytes
	room  int     // length of the queue, packets; 0 for 0.1 s, and ten at least
	// wait is the length of the queue as a time, beside what the bucket holds, like tc's "latency" of tbf; 0 for room.
	wait  time.Duration
	part  float64 // part of the rate that other traffic uses
	kind  string  // kind of that traffic
	probe probe.Kind
	v6    bool
}

func (c cell) name() string {
	beside := "alone"
	if c.part > 0 {
		beside = fmt.Sprintf("%.0f%% %s", 100*c.part, c.kind)
	}
	way := string(c.probe)
	if c.v6 {
		way += "6"
	}
	queue := ""
	if c.room > 0 {
		queue = fmt.Sprintf(" room for %d", c.room)
	}
	if c.wait > 0 {
		queue = fmt.Sprintf(" queue of %v", c.wait)
	}
	return fmt.Sprintf("%gmbit %dB%s %s %s", c.rate*8/1e6, c.burst, queue, beside, way)
}

func (o options) cells() ([]cell, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var all []cell
	for _, rate := range []float64{3500, 25_000, 125_000, 1_250_000, 12_500_000, 125_000_000} {
		for _, burst := range []int{1600, 4750, 16 << 10, 64 << 10} {
			if o.all || sampledAlone(rate, burst) {
				all = append(all, cell{rate: rate, burst: burst, probe: probe.Timestamp})
			}
			for _, part := range []float64{0.3, 0.5, 0.7} {
				for _, kind := range []string{"constant", "poisson", "tcp"} {
					if o.all || sampled(rate, burst, part, kind) {
						all = append(all, cell{rate: rate, burst: burst, part: part, kind: kind, probe: probe.Timestamp})
					}
				}
			}
		}
		if rate < 1e8 {
			shallow := cell{rate: rate, burst: 4750, probe: probe.Timestamp}
			for _, shallow.room = range []int{3, 10} {
				all = append(all, shallow)
			}
			shallow.room, shallow.wait = 0, 50*time.Millisecond // the paper's: tc qdisc add ... tbf burst 4750 latency 50ms
			all = append(all, shallow)
		}
		if !o.all && (rate < 1e6 || rate > 1e8) {
			continue
		}
		for _, v6 := range []bool{false, true} {
			for _, kind := range []probe.Kind{probe.UDP, probe.Echo} {
				all = append(all, cell{rate: rate, burst: 16 << 10, probe: kind, v6: v6})
				all = append(all, cell{rate: rate, burst: 16 << 10, part: 0.5, kind: "poisson", probe: kind, v6: v6})
			}
		}
	}
	var chosen []cell
	for _, c := range all {
		if only.MatchString(c.name()) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// sampledAlone says whether a cell without other traffic is measured without -all.
func sampledAlone(rate float64, burst int) bool {
	switch rate {
	case 3500:
		return burst == 4750 || burst == 64<<10
	case 25_000:
		return false // behind short queues only
	}
	return burst != 4750
}

// sampled says whether a cell with other traffic is measured without -all.
func sampled(rate float64, burst int, part float64, kind string) bool {
	switch rate {
	case 3500:
		return burst == 4750 && part == 0.5 && kind == "poisson"
	case 25_000:
		return false
	case 1_250_000:
		return burst == 1600 || burst == 64<<10
	case 125_000_000:
		return burst == 64<<10 && part == 0.5
	default:
		return burst == 64<<10
	}
}

type figures struct {
	Name          string       `json:"name"`
	Capacity      float64      `json:"true_capacity_bytes_per_sec"`
	Left          float64      `json:"true_available_bytes_per_sec"`
	Measured      probe.Result `json:"measured"`
	CapacityError float64      `json:"capacity_error"`
	LeftError     float64      `json:"available_error"`
	Pairs         float64      `json:"pairs_bytes_per_sec"`
	PairsError    float64      `json:"pairs_error"`
	Passive       float64      `json:"tcp_delivery_bytes_per_sec,omitempty"` // for a connection that fills the path
	PassiveError  float64      `json:"tcp_delivery_error,omitempty"`
	// NotKnown is the reason why netnice probe tells no rate; then the errors have no meaning.
	NotKnown string `json:"not_known,omitempty"`
	Failed   string `json:"failed,omitempty"` // the cell was not measured
	Verdict  string `json:"verdict"`
}

// within is the part of the capacity by which a result may be off.
const within = 0.05

// judge applies the criterion: the capacity is off by at most 5%, or it is not known, with the reason. A lower bound is
// never above the capacity.
func (f figures) judge() string {
	m := f.Measured.Capacity
	switch {
	case f.Failed != "":
		return "miss: not measured"
	case f.NotKnown != "":
		return "pass: not known"
	case m.AtLeast && f.CapacityError > within:
		return "miss: a false bound"
	case m.AtLeast:
		return "pass: a bound"
	case math.Abs(f.CapacityError) > within:
		return "miss"
	}
	return "pass"
}

func (f figures) missed() bool { return strings.HasPrefix(f.Verdict, "miss") }

// unknown returns the reason that an error gives for a rate that is not known, "" if the error is another one.
func unknown(err error) string {
	if errors.Is(err, probe.ErrDropped) || errors.Is(err, probe.ErrSilent) {
		return err.Error()
	}
	return ""
}

func run(ctx context.Context, b *bed.Bed, o options) error {
	cells, err := o.cells()
	if err != nil {
		return err
	}
	b.Printf("%-40s %9s %7s %7s %9s %9s %8s %7s %8s %6s %-28s %s\n", "", "capacity", "error", "+-", "left", "measured", "error", "+-", "pairs", "TCP", "cost", "verdict")
	var all []figures
	for _, c := range cells {
		f, err := c.measure(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.NotKnown = unknown(err); err != nil && f.NotKnown == "" {
			f.Failed = err.Error()
		}
		f.Verdict = f.judge()
		all = append(all, f)
		b.Printf("%s\n", f.line())
		if b.Quick && len(all) == 3 {
			break
		}
	}
	missed := summary(b, all)
	if err := b.Write(all); err != nil {
		return err
	}
	if o.check && missed > 0 {
		return fmt.Errorf("%d of %d cells miss: wanted is a capacity within %.0f%%, or the reason why it is not known, and no bound above it", missed, len(all), 100*within)
	}
	return nil
}

// line returns the figures as a line of the table.
func (f figures) line() string {
	m, tcp := f.Measured, ""
	cost := fmt.Sprintf("%.0f KB, %.1f s, lost %d", float64(m.SentBytes)/1e3, m.Took.Seconds(), m.Lost)
	switch {
	case f.Failed != "":
		return fmt.Sprintf("%-40s not measured: %s  %s", f.Name, f.Failed, f.Verdict)
	case f.NotKnown != "":
		return fmt.Sprintf("%-40s not known: %s; %s  %s", f.Name, f.NotKnown, cost, f.Verdict)
	case f.Passive > 0:
		tcp = fmt.Sprintf("%+.1f%%", 100*f.PassiveError)
	}
	return fmt.Sprintf("%-40s %9.4g %+6.1f%% %6.1f%% %9.4g %9.4g %+7.1f%% %6.1f%% %+7.0f%% %6s %-28s %s", f.Name, mbit(m.Capacity.BytesPerSec), 100*f.CapacityError,
		100*m.Capacity.PlusMinus/f.Capacity, mbit(f.Left), mbit(m.Available.BytesPerSec), 100*f.LeftError, 100*m.Available.PlusMinus/f.Left,
		100*f.PairsError, tcp, cost, f.Verdict)
}

func mbit(bytesPerSec float64) float64 { return bytesPerSec * 8 / 1e6 }

// summary prints the errors of all cells and the number of those that miss the criterion, and returns it.
func summary(b *bed.Bed, all []figures) (missed int) {
	var alone, pairs, left []float64
	notKnown := 0
	for _, f := range all {
		if f.missed() {
			missed++
		}
		if f.NotKnown != "" {
			notKnown++
		}
		if f.NotKnown != "" || f.Failed != "" {
			continue
		}
		if f.Left == f.Capacity {
			alone = append(alone, math.Abs(f.CapacityError))
		} else {
			left = append(left, math.Abs(f.LeftError))
		}
		pairs = append(pairs, math.Abs(f.PairsError))
	}
	for _, x := range []struct {
		what   string
		errors []float64
	}{{"capacity without others", alone}, {"available beside others", left}, {"capacity by pairs, all", pairs}} {
		if len(x.errors) > 0 {
			b.Printf("%s: error median %.1f%%, nine of ten within %.1f%%, largest %.1f%% (%d cells)\n", x.what,
				100*testbed.Percentile(x.errors, 50), 100*testbed.Percentile(x.errors, 90), 100*testbed.Percentile(x.errors, 100), len(x.errors))
		}
	}
	b.Printf("%d of %d cells miss: wanted is a capacity within %.0f%%, or the reason why it is not known (%d cells), and no bound above it\n", missed, len(all), 100*within, notKnown)
	return missed
}

func (c cell) measure(ctx context.Context) (f figures, err error) {
	f = figures{Name: c.name(), Capacity: c.rate}
	s, err := routed.Open(3)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	const packet = 1514
	queue := c.burst + max(int(c.rate/10), 10*packet)
	if c.room > 0 {
		queue = c.room * packet
	}
	if c.wait > 0 {
		queue = c.burst + int(c.rate*c.wait.Seconds())
	}
	if err := s.Shape(c.rate, c.burst, queue); err != nil {
		return f, err
	}
	cfg := probe.Config{To: s.Sink4, Kind: c.probe, Namespace: s.Source.Path(), Timeout: 20 * time.Second}
	if c.v6 {
		cfg.To = s.Sink6
	}
	if c.probe == probe.UDP {
		end, port, err := reflect(s, cfg.To)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, end()) }()
		cfg.Port = port
	}
	if c.part > 0 {
		x, err := startCross(s, c.kind, c.part*c.rate)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		if err := testbed.Sleep(ctx, time.Second); err != nil {
			return f, err
		}
	}
	p, err := probe.Open(ctx, cfg)
	if err != nil {
		return f, err
	}
	defer p.Close()
	before, err := s.FromOthers()
	if err != nil {
		return f, err
	}
	begin := time.Now()
	f.Measured, err = probe.Measure(ctx, p, probe.Options{Duration: time.Minute})
	if err != nil {
		return f, err
	}
	after, err := s.FromOthers()
	if err != nil {
		return f, err
	}
	f.Left = c.rate
	if c.part > 0 {
		f.Left = max(c.rate-(after-before)/time.Since(begin).Seconds(), 0)
	}
	f.CapacityError = f.Measured.Capacity.BytesPerSec/f.Capacity - 1
	f.LeftError = f.Measured.Available.BytesPerSec/f.Left - 1
	if f.Pairs, err = p.Pairs(ctx, 15, f.Measured.Size); err != nil {
		return f, err
	}
	f.PairsError = f.Pairs/f.Capacity - 1
	if c.part == 0 && c.rate > 1e5 {
		return f, f.passive(ctx, s)
	}
	return f, nil
}

// passive has a TCP connection fill the path, and reads the kernel's estimate.
func (f *figures) passive(ctx context.Context, s *routed.Site) (err error) {
	x, err := startCross(s, "tcp", 1e10)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := testbed.Sleep(ctx, 3*time.Second); err != nil {
		return err
	}
	c, err := probe.Connections(ctx, s.Others.Path(), s.Sink4)
	if err != nil {
		return err
	}
	f.Passive = c.DeliveryBytesPerSec * 1500 / 1448 // payload to packets
	f.PassiveError = f.Passive/f.Capacity - 1
	return nil
}

// reflect runs a reflector in the sink.
func reflect(s *routed.Site, at netip.Addr) (end func() error, port uint16, err error) {
	var r *probe.Reflector
	err = s.Sink.Do(func() (err error) {
		r, err = probe.Listen(netip.AddrPortFrom(at, 0))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	return func() error { stop(); return errors.Join(<-ended, r.Close()) }, r.Addr().Port(), nil
}
