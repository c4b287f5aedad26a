package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// figures is what -json writes.
type figures struct {
	Version  string        `json:"version"`
	Time     time.Time     `json:"time"`
	Kernel   string        `json:"kernel"`
	Interval string        `json:"interval"`
	Path     pathFigures   `json:"unloaded_path"`
	Cells    []cellFigures `json:"cells"`
}

// pathFigures are medians of the smoothed round trip without load.
type pathFigures struct {
	SmallMicros int64 `json:"rtt_us_600_bytes"`
	ChunkMicros int64 `json:"rtt_us_64_kb"`
}

// cellFigures are a cell's. "Steady" means after the first second, or after
// slow start over a path with distance.
type cellFigures struct {
	cell        cell
	Name        string `json:"name"`
	Limiter     string `json:"limiter"`
	Rate        uint64 `json:"limit_bytes_per_sec,omitempty"`
	Connections int    `json:"connections"`
	Congestion  string `json:"congestion"`

	SteadyIP      float64 `json:"steady_ip_bytes_per_sec"`
	SteadyPayload float64 `json:"steady_payload_bytes_per_sec"`
	FirstIP       float64 `json:"first_second_ip_bytes"`

	// Relative to the limit; 0 without one.
	IPRatio      float64 `json:"ip_over_limit,omitempty"`
	PayloadRatio float64 `json:"payload_over_limit,omitempty"`
	LinkRatio    float64 `json:"link_over_limit,omitempty"`
	FirstRatio   float64 `json:"first_second_ip_over_limit,omitempty"`

	// Over a path with distance: what went into it, retransmissions included,
	// what it lost, what did not fit into its buffer, and how late it was.
	IPv6           bool    `json:"ipv6,omitempty"`
	RoundTrip      string  `json:"round_trip,omitempty"`
	Loss           float64 `json:"loss,omitempty"`
	Sent           float64 `json:"sent_ip_bytes_per_sec,omitempty"`
	SentRatio      float64 `json:"sent_ip_over_limit,omitempty"`
	PathLost       int     `json:"path_lost,omitempty"`
	PathDropped    int     `json:"path_dropped,omitempty"`
	PathLateMillis int64   `json:"path_most_late_ms,omitempty"`

	Jain        float64    `json:"jain"`
	Shares      [2]float64 `json:"shares_16_and_1,omitzero"`
	Retransmits int        `json:"retransmits"`
	RTTMicros   int64      `json:"rtt_us_median"`
	RTT95Micros int64      `json:"rtt_us_p95"`
	RTTOverPath float64    `json:"rtt_over_unloaded_path"`
	// AckDelayed: the connections send a lone segment so seldom that the
	// receiver's delayed acknowledgements explain the round trip.
	AckDelayed   bool     `json:"ack_delayed,omitempty"`
	CPUPerGB     float64  `json:"process_cpu_seconds_per_gb"`
	MachinePerGB float64  `json:"machine_cpu_seconds_per_gb"`
	Missed       []string `json:"missed,omitempty"`
	// Longest time in which the receiver, which counts every 50 ms, did not
	// run. It says how disturbed the machine was.
	GapMillis int64 `json:"longest_gap_ms"`
	Attempts  int   `json:"attempts"`

	rtt                    []time.Duration
	processCPU, machineCPU float64
}

func (f *cellFigures) compute(rx *testutil.Receiver, h testutil.Headers, begin, end testutil.Instant) {
	second, steady := begin.Add(time.Second), begin.Add(f.cell.settle())
	f.SteadyPayload = rx.Goodput(0, steady, end)
	f.SteadyIP = f.SteadyPayload * h.IPFactor
	f.FirstIP = rx.Goodput(0, begin, second) * h.IPFactor
	if f.Rate > 0 {
		limit := float64(f.Rate)
		f.IPRatio, f.PayloadRatio = f.SteadyIP/limit, f.SteadyPayload/limit
		f.SentRatio = f.Sent / limit
		f.LinkRatio, f.FirstRatio = f.SteadyPayload*h.LinkFactor/limit, f.FirstIP/limit
	}
	f.Jain = testutil.Jain(rx.ConnGoodputs(5001, steady, end))
	if f.cell.shares && f.SteadyPayload > 0 {
		f.Shares[0] = rx.Goodput(5001, steady, end) / f.SteadyPayload
		f.Shares[1] = rx.Goodput(5002, steady, end) / f.SteadyPayload
	}
	f.RTTMicros = testutil.Percentile(f.rtt, 50).Microseconds()
	f.RTT95Micros = testutil.Percentile(f.rtt, 95).Microseconds()
	f.GapMillis = rx.LongestGap(begin, end).Milliseconds()
	if gb := rx.Bytes(0, end) / 1e9; gb > 0 {
		f.CPUPerGB, f.MachinePerGB = f.processCPU/gb, f.machineCPU/gb
	}
}

// The figures that netnice is wanted to reach.
const (
	wantRatio = 0.005 // of the limit, either way, in the steady time, and a segment
	wantShare = 0.03  // either way of one half
	wantRTT   = 1.5   // times that of the path without load...
	noiseRTT  = 50    // ...or that many microseconds more: timers, scheduling
)

// disturbed says that the machine, not the limit, may have made the figures.
func (f *cellFigures) disturbed() bool { return f.GapMillis > 200 || f.PathLateMillis > 50 }

// carries says whether the path carries more than the cell's limit. Where it
// loses packets, that depends on the congestion control: as the same cell
// without limit shows, if there was one.
func carries(done []cellFigures, c cell) bool {
	if c.loss == 0 {
		return true
	}
	for _, f := range done {
		d := f.cell
		if d.limiter == limiterNone && d.rtt == c.rtt && d.loss == c.loss && d.conns == c.conns && d.congestion == c.congestion && d.ipv6 == c.ipv6 {
			return f.SteadyIP > 2*float64(c.rate)
		}
	}
	return c.congestion == "bbr"
}

// judge notes what netnice missed. carries: the path carries more than the
// limit.
func (f *cellFigures) judge(path pathFigures, quickAck, carries bool) {
	unloaded := path.unloaded() + f.cell.rtt.Microseconds()
	f.RTTOverPath = float64(f.RTTMicros) / float64(unloaded)
	long := float64(f.RTTMicros) > max(wantRTT*float64(unloaded), float64(unloaded+noiseRTT))
	if f.Rate > 0 && !quickAck {
		f.AckDelayed = long && float64(f.RTTMicros) <= f.longestAckDelay()+float64(unloaded)
	}
	if f.Limiter != limiterNetnice {
		return
	}
	// Where packets are lost, what was sent is what was limited.
	got, steady := f.IPRatio, (f.cell.interval - f.cell.settle()).Seconds()
	if f.Loss > 0 {
		got = f.SentRatio
	}
	const segment, fewest = 1500, 10
	allowed := wantRatio + segment/(float64(f.Rate)*steady)
	judged := float64(f.Rate)*steady >= fewest*segment // else a segment or none
	if judged && (got > 1+allowed || carries && got < 1-allowed) {
		f.Missed = append(f.Missed, "ip_over_limit")
	}
	if f.Retransmits > f.PathLost+f.PathDropped {
		f.Missed = append(f.Missed, "retransmits")
	}
	if long && !f.AckDelayed {
		f.Missed = append(f.Missed, "rtt")
	}
	if f.cell.shares && math.Abs(f.Shares[0]-0.5) > wantShare {
		f.Missed = append(f.Missed, "shares")
	}
}

// longestAckDelay is what the receiver may add to a round trip by waiting for a
// second segment, in microseconds.
func (f *cellFigures) longestAckDelay() float64 {
	const segment = 1500
	between := segment * float64(f.Connections) / float64(f.Rate) * 1e6
	if f.cell.shares {
		between *= 2 // half of the rate is the other program's
	}
	longest := 44e3 // 40 ms and a tick
	if f.cell.distant() {
		longest = 204e3 // what a receiver that has waited before waits at most
	}
	return min(1.1*between, longest)
}

// unloaded is the round trip that limited flows are compared with: theirs
// carry chunks of up to 64 KB, too.
func (p pathFigures) unloaded() int64 { return max(p.SmallMicros, p.ChunkMicros, 1) }

func printHeader(out io.Writer, path pathFigures) {
	fmt.Fprintf(out, `path without load: round trip %d us with 600 bytes, %d us with 64 KB (median of TCP's smoothed ones)
after the first second, as parts of the limit (without one: MB/s): IP bytes, which netnice limits; payload; link bytes, which HTB limits

%-34s %9s %9s %9s %9s  %6s %6s %9s %9s %6s  %9s %9s
`, path.SmallMicros, path.ChunkMicros,
		"", "IP", "payload", "link", "first s", "Jain", "retr", "RTT p50", "p95, us", "x path", "CPU s/GB", "machine")
}

func printCell(out io.Writer, gap bool, f cellFigures) {
	if gap {
		fmt.Fprintln(out)
	}
	mark := func(figure string) string {
		switch {
		case slices.Contains(f.Missed, figure):
			return "*"
		case figure == "rtt" && f.AckDelayed:
			return "d"
		}
		return " "
	}
	rates := []float64{f.IPRatio, f.PayloadRatio, f.LinkRatio, f.FirstRatio}
	format := "%8.4f"
	if f.Rate == 0 {
		rates = []float64{f.SteadyIP / 1e6, f.SteadyPayload / 1e6, 0, f.FirstIP / 1e6}
		format = "%8.0f"
	}
	fmt.Fprintf(out, "%-34s", f.Name)
	for i, r := range rates {
		m := " "
		if i == 0 {
			m = mark("ip_over_limit")
		}
		text := fmt.Sprintf(format, r)
		if r == 0 {
			text = fmt.Sprintf("%8s", "-")
		}
		fmt.Fprintf(out, " %s%s", text, m)
	}
	fmt.Fprintf(out, " %6.3f %6d%s %8d %9d%s %6.1f  %9.3f %9.3f", f.Jain,
		f.Retransmits, mark("retransmits"), f.RTTMicros, f.RTT95Micros, mark("rtt"), f.RTTOverPath, f.CPUPerGB, f.MachinePerGB)
	if f.cell.distant() {
		text := fmt.Sprintf("%.4f", f.SentRatio)
		if f.Rate == 0 {
			text = fmt.Sprintf("%.1f MB/s", f.Sent/1e6)
		}
		fmt.Fprintf(out, "  sent %s, path lost %d, dropped %d", text, f.PathLost, f.PathDropped)
	}
	if f.disturbed() {
		fmt.Fprintf(out, "  machine stood still for %d ms", max(f.GapMillis, f.PathLateMillis))
	}
	if f.cell.shares {
		fmt.Fprintf(out, "  shares %.3f : %.3f%s", f.Shares[0], f.Shares[1], mark("shares"))
	}
	fmt.Fprintln(out)
}
