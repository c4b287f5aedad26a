package traffic

import (
	"fmt"
	"io"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// result holds the figures of a run. Rates are bytes per second.
type result struct {
	Seconds      float64                `json:"seconds"`
	Goodput      float64                `json:"goodput_payload"`
	IPRate       float64                `json:"goodput_ip"`              // IP bytes, as netnice limits
	LinkRate     float64                `json:"goodput_link"`            // link bytes, as HTB limits
	FirstSecond  float64                `json:"first_second_ip"`         // since the start
	AfterFirst   float64                `json:"after_first_second_ip"`   // the rest
	Windows      [2]float64             `json:"windows_of_one_s_ip"`     // least and most of all windows after the first second
	PerPort      []float64              `json:"per_process_payload"`     // whole run
	PerConn      []float64              `json:"per_connection_payload"`  // after the first second if there is more
	Jain         float64                `json:"jain"`                    // of PerConn
	Retransmits  int                    `json:"retransmits"`             // segments
	RTTMicros    [2]int64               `json:"rtt_us_p50_p95"`          // smoothed, of TCP_INFO
	LatencyUS    [3]int64               `json:"latency_us_p50_p95_p100"` // for requests or short connections
	Completed    int                    `json:"completed"`
	SenderCPU    float64                `json:"sender_cpu_seconds"`
	ReceiverCPU  float64                `json:"receiver_cpu_seconds"`
	MachineCPU   testbed.MachineCPU     `json:"machine_cpu"`
	CPUPerGB     float64                `json:"process_cpu_seconds_per_gb"`
	Reports      []testbed.SenderReport `json:"reports"`
	Relay        []relay.Counters       `json:"relay,omitempty"` // from A to B and back
	begin, end   testbed.Instant
	rx           *testbed.Receiver
	ports        int
	rtt, latency []time.Duration
}

func (r *result) compute() {
	var conns []testbed.ConnInfo
	for _, s := range r.Reports {
		conns = append(conns, s.AllConns()...)
		r.Retransmits += s.Retransmits()
		r.Completed += s.Completed
	}
	h := testbed.HeadersOfAll(conns)
	if len(conns) == 0 { // short connections leave no state
		h = testbed.HeadersOf(testbed.ConnInfo{MSS: 1448, Timestamps: true})
	}
	r.Goodput = r.rx.Goodput(0, r.begin, r.end)
	r.IPRate, r.LinkRate = r.Goodput*h.IPFactor, r.Goodput*h.LinkFactor
	second := min(r.begin.Add(time.Second), r.end)
	r.FirstSecond = r.rx.Goodput(0, r.begin, second) * h.IPFactor
	steady := r.begin
	if r.end.Sub(r.begin) > 1500*time.Millisecond {
		steady = second
		r.AfterFirst = r.rx.Goodput(0, second, r.end) * h.IPFactor
	}
	for from := second; from.Add(time.Second) <= r.end; from = from.Add(100 * time.Millisecond) {
		rate := r.rx.Goodput(0, from, from.Add(time.Second)) * h.IPFactor
		if r.Windows[0] == 0 || rate < r.Windows[0] {
			r.Windows[0] = rate
		}
		r.Windows[1] = max(r.Windows[1], rate)
	}
	for i := range r.ports {
		r.PerPort = append(r.PerPort, r.rx.Goodput(firstPort+uint16(i), r.begin, r.end))
	}
	r.PerConn = r.rx.ConnGoodputs(0, steady, r.end)
	r.Jain = testbed.Jain(r.PerConn)
	for i, p := range []float64{50, 95} {
		r.RTTMicros[i] = testbed.Percentile(r.rtt, p).Microseconds()
	}
	for i, p := range []float64{50, 95, 100} {
		r.LatencyUS[i] = testbed.Percentile(r.latency, p).Microseconds()
	}
	if r.Goodput > 0 {
		r.CPUPerGB = (r.SenderCPU + r.ReceiverCPU) / (r.Goodput * r.Seconds / 1e9)
	}
}

func (r *result) print(out io.Writer) {
	mb := func(v float64) string { return fmt.Sprintf("%.4f", v/1e6) }
	fmt.Fprintf(out, "\nrate, MB/s (%.1f s)     payload %s   IP %s   link %s\n", r.Seconds, mb(r.Goodput), mb(r.IPRate), mb(r.LinkRate))
	fmt.Fprintf(out, "IP rate, MB/s          first second %s   after it %s   windows of 1 s %s..%s\n",
		mb(r.FirstSecond), mb(r.AfterFirst), mb(r.Windows[0]), mb(r.Windows[1]))
	if len(r.PerPort) > 1 {
		fmt.Fprint(out, "payload per process   ")
		for _, v := range r.PerPort {
			fmt.Fprintf(out, " %s", mb(v))
		}
		fmt.Fprintln(out)
	}
	if len(r.PerConn) > 1 && r.Completed == 0 {
		fmt.Fprint(out, "payload per connection")
		for _, v := range r.PerConn {
			fmt.Fprintf(out, " %s", mb(v))
		}
		fmt.Fprintf(out, "\nJain index             %.4f\n", r.Jain)
	}
	fmt.Fprintf(out, "retransmits            %d\n", r.Retransmits)
	if len(r.rtt) > 0 {
		fmt.Fprintf(out, "RTT                    median %d us   p95 %d us\n", r.RTTMicros[0], r.RTTMicros[1])
	}
	if r.Completed > 0 {
		fmt.Fprintf(out, "completed              %d   latency median %d us   p95 %d us   longest %d us\n",
			r.Completed, r.LatencyUS[0], r.LatencyUS[1], r.LatencyUS[2])
	}
	for i, way := range []string{"path from A to B      ", "path back             "} {
		if i < len(r.Relay) {
			c := r.Relay[i]
			fmt.Fprintf(out, "%s %d packets, %d lost, %d dropped, %d unwanted; bottleneck's queue up to %d bytes; late by %v on average, %v at most\n",
				way, c.PacketsIn, c.Lost, c.Dropped, c.Unwanted(), c.MostQueue, c.MeanLate, c.MostLate)
		}
	}
	fmt.Fprintf(out, "CPU seconds            sender %.3f   receiver %.3f   machine %.2f (all programs)   processes per GB %.3f\n",
		r.SenderCPU, r.ReceiverCPU, r.MachineCPU.Busy, r.CPUPerGB)
}
