package egress

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// These are the figures that netnice has to reach.
const (
	wantRatio = 0.005 // tolerance of the limit in the steady time, and a segment
	wantShare = 0.02  // tolerance of one half
	wantJain  = 0.99
	wantFirst = 1.05 // over the limit in the first second, from leastFirst on
	wantRTT   = 1.5  // times that of the path without load...
	noiseRTT  = 50   // ...or that many microseconds more: timers, scheduling

	leastFirst  = 128e3                // bytes/s
	chunk       = 8 * time.Millisecond // time at the limit's rate that a connection may send at once
	segment     = 1500                 // IP bytes
	fewestTimes = 10                   // segments that a judged figure needs at least
)

// judge records the figures that netnice missed. carries says that the path carries more than the limit.
func judge(f *bench.CellFigures, path bench.Path, quickAck, carries bool) {
	unloaded := path.Unloaded() + f.Cell.RTT.Microseconds()
	f.RTTOverPath = float64(f.RTTMicros) / float64(unloaded)
	long := float64(f.RTTMicros) > max(wantRTT*float64(unloaded), float64(unloaded+noiseRTT))
	if f.Rate > 0 && !quickAck {
		f.AckDelayed = long && float64(f.RTTMicros) <= longestAckDelay(f)+float64(unloaded)
	}
	if f.Limiter != bench.Netnice {
		return
	}
	// On a path with loss, the limit applies to the sent bytes.
	got, steady := f.IPRatio, f.Steady().Seconds()
	if f.Loss > 0 {
		got = f.SentRatio
	}
	rate, conns := float64(f.Rate), float64(f.Connections)
	allowed := wantRatio + segment/(rate*steady)
	judged := rate*steady >= fewestTimes*segment // a smaller figure is a segment or none
	if judged && (got > 1+allowed || carries && got < 1-allowed) {
		f.Missed = append(f.Missed, "ip_over_limit")
	}
	if f.Rate >= leastFirst && f.FirstRatio > wantFirst {
		f.Missed = append(f.Missed, "first_second")
	}
	// A chunk more, and a segment of each connection, may arrive within a second.
	if judged && f.MostRatio > 1+wantRatio+chunk.Seconds()+conns*segment/rate {
		f.Missed = append(f.Missed, "fullest_second")
	}
	if carries && f.Jain < wantJain && rate*steady >= fewestTimes*segment*conns {
		f.Missed = append(f.Missed, "jain")
	}
	if f.Retransmits > f.PathLost+f.PathDropped {
		f.Missed = append(f.Missed, "retransmits")
	}
	if long && !f.AckDelayed {
		f.Missed = append(f.Missed, "rtt")
	}
	if f.Cell.Shares && math.Abs(f.Shares[0]-0.5) > wantShare {
		f.Missed = append(f.Missed, "shares")
	}
}

// longestAckDelay returns the time that the receiver may add to a round trip while it waits for a second segment, in
// microseconds.
func longestAckDelay(f *bench.CellFigures) float64 {
	between := segment * float64(f.Connections) / float64(f.Rate) * 1e6
	if f.Cell.Shares {
		between *= 2 // half of the rate is the other program's
	}
	longest := 44e3 // 40 ms and a tick
	if f.Cell.Distant() {
		longest = 204e3 // the longest wait of a receiver that has waited before
	}
	return min(1.1*between, longest)
}

func printHeader(out io.Writer, path bench.Path) {
	fmt.Fprintf(out, `path without load: round trip %d us with 600 bytes, %d us with 64 KB (median of TCP's smoothed ones)
after the first second, as parts of the limit (without one: MB/s): IP bytes, which netnice limits; payload; link bytes, which HTB limits

%-34s %9s %9s %9s %9s  %6s  %6s %6s %9s %9s %6s  %9s %9s
`, path.SmallMicros, path.ChunkMicros,
		"", "IP", "payload", "link", "first s", "most s", "Jain", "retr", "RTT p50", "p95, us", "x path", "CPU s/GB", "machine")
}

func printCell(out io.Writer, f bench.CellFigures) {
	rtt := f.Mark("rtt")
	if f.AckDelayed {
		rtt = "d"
	}
	f.PrintRates(out, [4]string{f.Mark("ip_over_limit"), " ", " ", f.Mark("first_second")})
	most := "-"
	if f.Rate > 0 {
		most = fmt.Sprintf("%.3f", f.MostRatio)
	}
	fmt.Fprintf(out, " %6s%s %6.3f%s %5d%s %8d %9d%s %6.1f  %9.3f %9.3f", most, f.Mark("fullest_second"), f.Jain, f.Mark("jain"),
		f.Retransmits, f.Mark("retransmits"), f.RTTMicros, f.RTT95Micros, rtt, f.RTTOverPath, f.CPUPerGB, f.MachinePerGB)
	f.PrintPath(out)
	if f.Cell.Shares {
		fmt.Fprintf(out, "  shares %.3f : %.3f%s", f.Shares[0], f.Shares[1], f.Mark("shares"))
	}
	fmt.Fprintln(out)
}
