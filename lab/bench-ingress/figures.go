package ingress

import (
	"fmt"
	"io"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// These are the figures that netnice has to reach.
const (
	wantRatio = 0.01 // tolerance of the limit in the steady time, and a segment
	wantFirst = 0.1  // tolerance above the limit in the first second
	wantJain  = 0.98
	wantDelay = 20 * time.Millisecond // on top of the path's round trip...
	wantTurns = 1.2                   // ...or times the duration of a turn of two segments of each connection

	// Above a limit of fewRate, few packets may be lost.
	fewRate, few = 125e6, 100
)

// judge records the figures that netnice missed. carries says that the path carries more than the limit.
func judge(f *bench.CellFigures, path bench.Path, _, carries bool) {
	unloaded := path.Unloaded() + f.Cell.RTT.Microseconds()
	f.AddedMicros = f.RTTMicros - unloaded
	f.RTTOverPath = float64(f.RTTMicros) / float64(unloaded)
	if f.Limiter != bench.Netnice {
		return
	}
	// Where the path is as narrow as the limit, the queue may be the path's.
	carries = carries && (!f.Cell.Distant() || f.Rate < bench.WireRate)
	miss := func(missed bool, figure string) {
		if missed {
			f.Missed = append(f.Missed, figure)
		}
	}
	const segment = 1500
	allowed := wantRatio + segment/(float64(f.Rate)*f.Steady().Seconds())
	miss(f.IPRatio > 1+allowed || carries && f.IPRatio < 1-allowed, "ip_over_limit")
	miss(f.FirstRatio > 1+wantFirst, "first_second")
	miss(f.Jain < wantJain, "jain")
	most := 0
	if f.Rate > fewRate {
		most = few
	}
	miss(f.Retransmits > f.PathLost+f.PathDropped+most, "retransmits")
	miss(dropped(f) > uint64(most), "dropped")
	miss(carries && f.AddedMicros > longestDelay(f).Microseconds(), "added_delay")
}

// longestDelay returns the time that the limit may add to the round trip.
func longestDelay(f *bench.CellFigures) time.Duration {
	const payload = 1448
	turn := float64(f.Connections) * 2 * payload / float64(f.Rate)
	turns := time.Duration(wantTurns * turn * float64(time.Second))
	if f.Rate >= 1e6 && f.Connections <= 32 {
		return wantDelay
	}
	return max(wantDelay, turns)
}

// dropped counts the packets that reached the namespace and not the program.
func dropped(f *bench.CellFigures) uint64 {
	n := f.Refused
	if f.Dropped != nil {
		n += *f.Dropped
	}
	return n
}

func printHeader(out io.Writer, path bench.Path) {
	fmt.Fprintf(out, `path without load: round trip %d us with 600 bytes, %d us with 64 KB (median of TCP's smoothed ones)
received after the first second, as parts of the limit (without one: MB/s): IP bytes, which netnice limits; payload; link bytes, which HTB limits

%-34s %9s %9s %9s %9s  %6s %7s %7s  %9s %9s %10s  %9s %9s
`, path.SmallMicros, path.ChunkMicros,
		"", "IP", "payload", "link", "first s", "Jain", "retr", "drop", "RTT p50", "p95, us", "added ms", "CPU s/GB", "machine")
}

func printCell(out io.Writer, f bench.CellFigures) {
	f.PrintRates(out, [4]string{f.Mark("ip_over_limit"), " ", " ", f.Mark("first_second")})
	fmt.Fprintf(out, " %6.3f%s %6d%s %6d%s %9d %9d %10.3f%s %9.3f %9.3f", f.Jain, f.Mark("jain"),
		f.Retransmits, f.Mark("retransmits"), dropped(&f), f.Mark("dropped"),
		f.RTTMicros, f.RTT95Micros, float64(f.AddedMicros)/1e3, f.Mark("added_delay"), f.CPUPerGB, f.MachinePerGB)
	f.PrintPath(out)
	fmt.Fprintln(out)
}
