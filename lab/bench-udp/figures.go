package udp

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// These are the figures that netnice has to reach.
const (
	wantRatio     = 0.005 // tolerance of the limit
	wantSum       = 0.01  // the same, next to TCP
	wantDeviation = 0.05  // deviation of the gaps, over their mean
	wantHalf      = 0.495 // TCP's part of the limit, unless UDP leaves less
	wantBlocked   = 0.9   // part of the time of a sender that offers too much
)

// judge records the figures that netnice missed.
func (s *stand) judge(f *bench.CellFigures, _ bench.Path, _, _ bool) {
	if f.Limiter != bench.Netnice {
		return
	}
	u, miss := f.UDP, func(missed bool, figure string) {
		if missed {
			f.Missed = append(f.Missed, figure)
		}
	}
	// Where the machine carries no more than the limit, a lower rate is no miss.
	free := s.free[bench.Datagrams{PayloadBytes: u.PayloadBytes, Way: bench.Up}]
	carries := free == 0 || free > 1.5*float64(f.Rate)
	allowed := wantRatio
	if f.Cell.Way == bench.Mix {
		allowed = wantSum
		miss(u.TCPRatio < wantHalf, "tcp")
	}
	miss(f.IPRatio > 1+allowed || carries && f.IPRatio < 1-allowed, "ip_over_limit")
	miss(carries && f.Cell.Way != bench.Mix && u.Deviation > wantDeviation, "gap_deviation")
	if f.Cell.Way == bench.Down {
		return // more than the limit arrives, so some is lost in any case
	}
	miss(u.Lost > 0, "lost")
	miss(u.Failed > 0, "calls_failed")
	miss(carries && u.Offered > 1 && u.InCall < wantBlocked, "in_call")
}

func printHeader(out io.Writer, path bench.Path) {
	fmt.Fprintf(out, "path without load: round trip of TCP %d us with 600 bytes\n", path.SmallMicros)
	fmt.Fprintf(out, "as parts of the limit (without one: MB/s), after 1.5 s, in which what is lost is counted for itself: IP bytes, which netnice limits; link bytes, which HTB limits\n")
}

func (s *stand) print(out io.Writer, f bench.CellFigures) {
	u := f.UDP
	if s.way != f.Cell.Way {
		s.way = f.Cell.Way
		if s.way == bench.Mix {
			fmt.Fprintf(out, "%-30s %9s %8s %9s  %8s %7s %7s %7s  %6s %9s %9s  %8s %8s\n", "UDP beside TCP, one limit",
				"sum, IP", "UDP", "TCP", "lost", "first", "failed", "in call", "retr", "RTT p50", "p95, us", "CPU s/GB", "machine")
		} else {
			fmt.Fprintf(out, "%-30s %9s %8s  %8s %7s %7s %7s  %16s %9s %9s %9s  %8s %8s\n",
				map[bench.Way]string{bench.Up: "UDP, sent", bench.Down: "UDP, received"}[s.way],
				"IP", "link", "lost", "first", "failed", "in call", "gaps of: p50, us", "p5", "p95", "dev. %", "CPU s/GB", "machine")
		}
	}
	rates := func(values ...float64) (out []any) {
		for _, v := range values {
			text := fmt.Sprintf("%.4f", v)
			if f.Rate == 0 {
				text = fmt.Sprintf("%.1f", v)
			}
			out = append(out, text)
		}
		return out
	}
	lost := func() {
		fmt.Fprintf(out, "  %7d%s %7d %6d%s %6.3f%s ", u.Lost, f.Mark("lost"), u.LostFirst, u.Failed, f.Mark("calls_failed"), u.InCall, f.Mark("in_call"))
	}
	switch {
	case f.Cell.Way == bench.Mix:
		r := rates(f.IPRatio, u.IPRatio, u.TCPRatio)
		fmt.Fprintf(out, "%-30s %8s%s %8s %8s%s", f.Name, r[0], f.Mark("ip_over_limit"), r[1], r[2], f.Mark("tcp"))
		lost()
		fmt.Fprintf(out, " %6d %9d %9d ", f.Retransmits, f.RTTMicros, f.RTT95Micros)
	case f.Rate == 0:
		r := rates(f.SteadyIP / 1e6)
		fmt.Fprintf(out, "%-30s %8s  %8s", f.Name, r[0], "-")
		lost()
		fmt.Fprintf(out, " %16s %9s %9s %9s ", "-", "-", "-", "-")
	default:
		r := rates(f.IPRatio, f.LinkRatio)
		fmt.Fprintf(out, "%-30s %8s%s %8s", f.Name, r[0], f.Mark("ip_over_limit"), r[1])
		lost()
		fmt.Fprintf(out, " %5d: %9.1f %9.1f %9.1f %8.2f%s ", u.Group, micros(u.Median), micros(u.P5), micros(u.P95), 100*u.Deviation, f.Mark("gap_deviation"))
	}
	fmt.Fprintf(out, " %8.3f %8.3f", f.CPUPerGB, f.MachinePerGB)
	f.PrintPath(out)
	fmt.Fprintln(out)
}

func micros(d time.Duration) float64 { return math.Round(d.Seconds()*1e7) / 10 }
