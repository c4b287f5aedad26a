package bench

import (
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/datagram"
)

// Figures is the content of the file of -json.
type Figures struct {
	Version  string        `json:"version"`
	Time     time.Time     `json:"time"`
	Kernel   string        `json:"kernel"`
	Interval string        `json:"interval"`
	Path     Path          `json:"unloaded_path"`
	Cells    []CellFigures `json:"cells"`
}

// Path holds medians of the smoothed round trip without load.
type Path struct {
	SmallMicros int64 `json:"rtt_us_600_bytes"`
	ChunkMicros int64 `json:"rtt_us_64_kb"`
}

// Unloaded returns the round trip to compare those of limited flows with: such flows carry chunks of up to 64 KB,
// too.
func (p Path) Unloaded() int64 { return max(p.SmallMicros, p.ChunkMicros, 1) }

// CellFigures holds the figures of a cell. "Steady" means after the first second, or after slow start over a path
// with distance.
type CellFigures struct {
	Cell        Cell   `json:"-"`
	Name        string `json:"name"`
	Limiter     string `json:"limiter"`
	Rate        uint64 `json:"limit_bytes_per_sec,omitempty"`
	Connections int    `json:"connections"`
	Congestion  string `json:"congestion"`

	SteadyIP      float64 `json:"steady_ip_bytes_per_sec"`
	SteadyPayload float64 `json:"steady_payload_bytes_per_sec"`
	FirstIP       float64 `json:"first_second_ip_bytes"`

	// The ratios are relative to the limit, and 0 without one.
	IPRatio      float64 `json:"ip_over_limit,omitempty"`
	PayloadRatio float64 `json:"payload_over_limit,omitempty"`
	LinkRatio    float64 `json:"link_over_limit,omitempty"`
	FirstRatio   float64 `json:"first_second_ip_over_limit,omitempty"`
	MostRatio    float64 `json:"fullest_second_ip_over_limit,omitempty"` // within the steady time

	// For a path with distance there are figures of the relay: packets in, retransmissions included, loss, overflow
	// of its buffer, and lateness.
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
	// AckDelayed says that the connections send a lone segment so rarely that the receiver's delayed
	// acknowledgements explain the round trip.
	AckDelayed   bool     `json:"ack_delayed,omitempty"`
	CPUPerGB     float64  `json:"process_cpu_seconds_per_gb"`
	MachinePerGB float64  `json:"machine_cpu_seconds_per_gb"`
	Missed       []string `json:"missed,omitempty"`
	// GapMillis is the longest time in which the receiver, which counts every 50 ms, did not run. It shows how
	// disturbed the machine was.
	GapMillis int64 `json:"longest_gap_ms"`
	Attempts  int   `json:"attempts"`

	UDP *UDPFigures `json:"udp,omitempty"` // for cells with datagrams

	// Where ingress is limited, Dropped counts the packets that the limiter dropped, if it has a counter. Refused
	// counts the packets that the receiver's TCP refused for lack of window or memory. There is also the round trip
	// above that of the path without load.
	Dropped     *uint64 `json:"dropped_by_limiter,omitempty"`
	Refused     uint64  `json:"refused_by_tcp,omitempty"`
	AddedMicros int64   `json:"added_delay_us,omitempty"`
	// MachineDropped counts packets that a busy machine dropped, if they explain TCP's retransmits.
	MachineDropped uint64 `json:"machine_dropped,omitempty"`

	rtt                    []time.Duration
	processCPU, machineCPU float64
}

// UDPFigures holds the figures of datagrams, in the steady time unless stated otherwise. Beside TCP, the cell's
// rates and CPU time cover both.
type UDPFigures struct {
	PayloadBytes int     `json:"payload_bytes"`
	Offered      float64 `json:"offered_over_limit,omitempty"`
	IPRatio      float64 `json:"ip_over_limit,omitempty"`
	TCPRatio     float64 `json:"tcp_ip_over_limit,omitempty"`
	LostFirst    int64   `json:"lost_before"`
	Failed       uint64  `json:"calls_failed"` // since the start
	// InCall is the part of the time that the sender spent in its calls: 1 means that it was blocked, or used all of
	// its CPU time there.
	InCall     float64 `json:"in_call"`
	LateMillis int64   `json:"sender_most_late_ms"` // wait for a CPU
	datagram.Arrivals
}

func (f *CellFigures) compute(rx Receiver, h testbed.Headers, begin, end testbed.Instant) {
	second, steady := begin.Add(time.Second), begin.Add(f.Cell.Settle())
	f.SteadyPayload = rx.Goodput(0, steady, end)
	f.SteadyIP = f.SteadyPayload * h.IPFactor
	f.FirstIP = rx.Goodput(0, begin, second) * h.IPFactor
	if f.Rate > 0 {
		limit := float64(f.Rate)
		f.IPRatio, f.PayloadRatio = f.SteadyIP/limit, f.SteadyPayload/limit
		f.SentRatio = f.Sent / limit
		f.LinkRatio, f.FirstRatio = f.SteadyPayload*h.LinkFactor/limit, f.FirstIP/limit
		f.MostRatio = rx.MostGoodput(steady, end, time.Second) * h.IPFactor / limit
	}
	f.Jain = testbed.Jain(rx.ConnGoodputs(FirstPort, steady, end))
	if f.Cell.Shares && f.SteadyPayload > 0 {
		f.Shares[0] = rx.Goodput(FirstPort, steady, end) / f.SteadyPayload
		f.Shares[1] = rx.Goodput(SecondPort, steady, end) / f.SteadyPayload
	}
	f.RTTMicros = testbed.Percentile(f.rtt, 50).Microseconds()
	f.RTT95Micros = testbed.Percentile(f.rtt, 95).Microseconds()
	f.GapMillis = rx.LongestGap(begin, end).Milliseconds()
	if gb := rx.Bytes(0, end) / 1e9; gb > 0 {
		f.CPUPerGB, f.MachinePerGB = f.processCPU/gb, f.machineCPU/gb
	}
}

// disturbed says that the machine, not the limit, may explain the figures.
func (f *CellFigures) disturbed() bool { return f.stoodStill() || f.MachineDropped > 0 }

func (f *CellFigures) stoodStill() bool {
	return f.GapMillis > 200 || f.PathLateMillis > 50 || f.UDP != nil && f.UDP.LateMillis > 20
}

// Steady returns the length of the steady time.
func (f *CellFigures) Steady() time.Duration { return f.Cell.Interval - f.Cell.Settle() }

// carries says whether the path carries more than the cell's limit. On a path with loss, that depends on the
// congestion control. The answer then comes from the same cell without limit, if there was one.
func carries(done []CellFigures, c Cell) bool {
	if c.Loss == 0 {
		return true
	}
	for _, f := range done {
		d := f.Cell
		if d.Limiter == None && d.RTT == c.RTT && d.Loss == c.Loss && d.Conns == c.Conns && d.Congestion == c.Congestion && d.IPv6 == c.IPv6 {
			return f.SteadyIP > 2*float64(c.Rate)
		}
	}
	return c.Congestion == "bbr"
}
