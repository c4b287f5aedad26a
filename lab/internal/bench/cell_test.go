package bench

import (
	"testing"
	"time"
)

func TestName(t *testing.T) {
	for want, c := range map[string]Cell{
		"none x1 cubic":                        {Limiter: None, Conns: 1, Congestion: "cubic"},
		"netnice 1.25GB/s x16+1 bbr":           {Limiter: Netnice, Rate: 1250e6, Conns: 16, Congestion: "bbr", Shares: true},
		"netnice 64KB/s x4 cubic IPv6 20ms 1%": {Limiter: Netnice, Rate: 64e3, Conns: 4, Congestion: "cubic", IPv6: true, RTT: 20 * time.Millisecond, Loss: 0.01},
		"trickle 5B/s x1 cubic 0s 2%":          {Limiter: Trickle, Rate: 5, Conns: 1, Congestion: "cubic", Loss: 0.02},
	} {
		if got := c.Name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSettle(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		cell Cell
		want time.Duration
	}{
		{Cell{Rate: 1250e6, Conns: 1}, time.Second},                  // no distance
		{Cell{Rate: 64e3, Conns: 4, RTT: 300 * ms}, time.Second},     // the first window is enough
		{Cell{Rate: 1e6, Conns: 1, RTT: 300 * ms}, 10 * 300 * ms},    // 20.7 windows: 7 rounds, and 3
		{Cell{Rate: 1e6, Conns: 32, RTT: 300 * ms}, time.Second},     // each has little to reach
		{Cell{Conns: 1, RTT: 100 * ms}, 13 * 100 * ms},               // a tenth of the path: 86 windows
		{Cell{Rate: 10e6, Conns: 1, RTT: 20 * ms}, time.Second},      // 9 rounds of 20 ms
		{Cell{Rate: 125e6, Conns: 1, RTT: 300 * ms}, 20 * 300 * ms},  // 2590 windows: 17 rounds, and 3
		{Cell{Rate: 125e6, Conns: 32, RTT: 300 * ms}, 13 * 300 * ms}, // 81 windows
	} {
		if got := c.cell.Settle(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.cell, got, c.want)
		}
	}
}

func TestCarries(t *testing.T) {
	lossy := Cell{Limiter: Netnice, Rate: 1e6, Conns: 4, Congestion: "cubic", RTT: time.Second, Loss: 0.01}
	free := lossy
	free.Limiter, free.Rate = None, 0
	for _, c := range []struct {
		rate float64 // rate without a limit
		want bool
	}{{3e6, true}, {1.5e6, false}} {
		if got := carries([]CellFigures{{Cell: free, SteadyIP: c.rate}}, lossy); got != c.want {
			t.Errorf("%v bytes/s without limit: %v", c.rate, got)
		}
	}
	if carries(nil, lossy) {
		t.Error("cubic where packets are lost, and nothing to compare with")
	}
	lossy.Loss = 0
	if !carries(nil, lossy) {
		t.Error("a path that loses nothing carries more")
	}
}
