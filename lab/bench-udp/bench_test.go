package udp

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/bench"
	"github.com/netnice/netnice/lab/internal/bench/benchtest"
	"github.com/netnice/netnice/lab/internal/datagram"
)

func TestMain(m *testing.M) {
	datagram.MaybeRun()
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

func TestCells(t *testing.T) {
	every, usual := benchtest.Names(benchtest.Cells(t, program(), "-all")), benchtest.Cells(t, program())
	if took := bench.Estimate(usual); took > 150*time.Second {
		t.Errorf("all %d cells take %v", len(usual), took)
	}
	names := benchtest.Names(usual)
	if len(names) != len(usual) {
		t.Errorf("%d cells have %d names", len(usual), len(names))
	}
	for name := range names {
		if !every[name] {
			t.Errorf("-all has no %q", name)
		}
	}
	for _, want := range []string{
		"none up 200B", "htb 64KB/s up 1400B", "tbf 1MB/s up 1400B", "netnice 100MB/s up 200B", "netnice 1MB/s up 1400B IPv6",
		"netnice 10MB/s down 1400B", "htb 1MB/s mix 1400B 0.7x", "netnice 10MB/s mix 1400B 0.2x",
	} {
		if !names[want] {
			t.Errorf("no cell %q", want)
		}
	}
	if quick := bench.Estimate(benchtest.Cells(t, program(), "-quick")); quick > time.Minute {
		t.Errorf("-quick takes %v", quick)
	}
	for _, args := range [][]string{{"-rtt", "20ms"}, {"-loss", "0.1"}, {"-quickack"}, {"-limiters", "trickle"}} {
		if _, err := program().Parse(benchtest.Flags(), args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestJudge(t *testing.T) {
	figures := func(way bench.Way, change func(*bench.CellFigures)) bench.CellFigures {
		f := bench.CellFigures{Limiter: bench.Netnice, Rate: 1e6, IPRatio: 1.004, UDP: &bench.UDPFigures{PayloadBytes: 1400, Offered: 3, InCall: 0.99, TCPRatio: 0.5}}
		f.UDP.Deviation, f.Cell.Way = 0.04, way
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		way    bench.Way
		change func(*bench.CellFigures)
		missed []string
	}{
		"good":             {bench.Up, func(*bench.CellFigures) {}, nil},
		"too much":         {bench.Up, func(f *bench.CellFigures) { f.IPRatio = 1.006 }, []string{"ip_over_limit"}},
		"too little":       {bench.Down, func(f *bench.CellFigures) { f.IPRatio = 0.99 }, []string{"ip_over_limit"}},
		"uneven":           {bench.Up, func(f *bench.CellFigures) { f.UDP.Deviation = 0.06 }, []string{"gap_deviation"}},
		"lost":             {bench.Up, func(f *bench.CellFigures) { f.UDP.Lost = 1 }, []string{"lost"}},
		"refused":          {bench.Up, func(f *bench.CellFigures) { f.UDP.Failed = 1 }, []string{"calls_failed"}},
		"not blocked":      {bench.Up, func(f *bench.CellFigures) { f.UDP.InCall = 0.1 }, []string{"in_call"}},
		"received, lost":   {bench.Down, func(f *bench.CellFigures) { f.UDP.Lost, f.UDP.InCall = 9, 0 }, nil},
		"mix":              {bench.Mix, func(f *bench.CellFigures) { f.IPRatio, f.UDP.Deviation = 0.992, 1 }, nil},
		"mix, too little":  {bench.Mix, func(f *bench.CellFigures) { f.IPRatio = 0.98 }, []string{"ip_over_limit"}},
		"mix, TCP starved": {bench.Mix, func(f *bench.CellFigures) { f.UDP.TCPRatio = 0.48 }, []string{"tcp"}},
		"not ours":         {bench.Up, func(f *bench.CellFigures) { f.Limiter, f.IPRatio = limiterHTB, 0.5 }, nil},
		"a slow machine":   {bench.Up, func(f *bench.CellFigures) { f.Rate, f.IPRatio, f.UDP.Deviation, f.UDP.InCall = 100e6, 0.9, 0.2, 0.5 }, nil},
	} {
		s := &stand{free: map[bench.Datagrams]float64{{PayloadBytes: 1400, Way: bench.Up}: 90e6}}
		f := figures(c.way, c.change)
		s.judge(&f, bench.Path{}, false, true)
		if !slices.Equal(f.Missed, c.missed) {
			t.Errorf("%s: missed %q, want %q", name, f.Missed, c.missed)
		}
	}
}

// The test runs one cell of each direction, with the other limiters, completely.
func TestRun(t *testing.T) {
	testutil.SkipUnlessAll(t, "what the bench measures with has tests of its own in this package")
	testutil.RequireRoot(t)
	o := benchtest.Parse(t, program(), "-all", "-interval", "1.5s", "-limiters", "none,htb,tbf",
		"-only", "none up 1400B$|tbf 1MB/s up 200B$|htb 1MB/s down 1400B IPv6|htb 1MB/s mix 1400B 0.2x")
	var out bytes.Buffer
	if _, err := program().Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"none up 1400B", "tbf 1MB/s up 200B", "htb 1MB/s down 1400B IPv6", "htb 1MB/s mix 1400B 0.2x", "UDP beside TCP", "UDP, received"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
