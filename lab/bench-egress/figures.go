package main

import (
	"fmt"
	"io"
	"math"

	"github.com/netnice/netnice/lab/internal/bench"
)

// The figures that netnice is wanted to reach.
const (
	wantRatio = 0.005 // of the limit, either way, in the steady time, and a segment
	wantShare = 0.03  // either way of one half
	wantRTT   = 1.5   // times that of the path without load...
	noiseRTT  = 50    // ...or that many microseconds more: timers, scheduling
)

// judge notes what netnice missed. carries: the path carries more than the
// limit.
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
	// Where packets are lost, what was sent is what was limited.
	got, steady := f.IPRatio, f.Steady().Seconds()
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
	if f.Cell.Shares && math.Abs(f.Shares[0]-0.5) > wantShare {
		f.Missed = append(f.Missed, "shares")
	}
}

// longestAckDelay is what the receiver may add to a round trip by waiting for a
// second segment, in microseconds.
func longestAckDelay(f *bench.CellFigures) float64 {
	const segment = 1500
	between := segment * float64(f.Connections) / float64(f.Rate) * 1e6
	if f.Cell.Shares {
		between *= 2 // half of the rate is the other program's
	}
	longest := 44e3 // 40 ms and a tick
	if f.Cell.Distant() {
		longest = 204e3 // what a receiver that has waited before waits at most
	}
	return min(1.1*between, longest)
}

func printHeader(out io.Writer, path bench.Path) {
	fmt.Fprintf(out, `path without load: round trip %d us with 600 bytes, %d us with 64 KB (median of TCP's smoothed ones)
after the first second, as parts of the limit (without one: MB/s): IP bytes, which netnice limits; payload; link bytes, which HTB limits

%-34s %9s %9s %9s %9s  %6s %6s %9s %9s %6s  %9s %9s
`, path.SmallMicros, path.ChunkMicros,
		"", "IP", "payload", "link", "first s", "Jain", "retr", "RTT p50", "p95, us", "x path", "CPU s/GB", "machine")
}

func printCell(out io.Writer, f bench.CellFigures) {
	rtt := f.Mark("rtt")
	if f.AckDelayed {
		rtt = "d"
	}
	f.PrintRates(out, [4]string{f.Mark("ip_over_limit"), " ", " ", " "})
	fmt.Fprintf(out, " %6.3f %6d%s %8d %9d%s %6.1f  %9.3f %9.3f", f.Jain,
		f.Retransmits, f.Mark("retransmits"), f.RTTMicros, f.RTT95Micros, rtt, f.RTTOverPath, f.CPUPerGB, f.MachinePerGB)
	f.PrintPath(out)
	if f.Cell.Shares {
		fmt.Fprintf(out, "  shares %.3f : %.3f%s", f.Shares[0], f.Shares[1], f.Mark("shares"))
	}
	fmt.Fprintln(out)
}
