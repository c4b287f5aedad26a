package ingress

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bench"
	"github.com/netnice/netnice/lab/internal/bench/benchtest"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

func TestCells(t *testing.T) {
	every := benchtest.Names(append(benchtest.Cells(t, program(), "-all"), benchtest.Cells(t, program(), "-all", "-6")...))
	benchtest.CheckSample(t, program(), 5*time.Minute, []string{
		"none x32 cubic", "ifb 64KB/s x4 cubic", "netnice 1.25GB/s x4 cubic", "trickle 1MB/s x1 cubic", "police 125MB/s x4 bbr",
		"netnice 10MB/s x4 cubic IPv6", "netnice 1MB/s x4 cubic 300ms", "police 1MB/s x4 bbr 20ms 1%",
	}, every)
	if every["netnice 1.25GB/s x1 cubic 20ms"] || !every["netnice 125MB/s x32 bbr 300ms 1%"] || every["trickle 1MB/s x4 cubic"] {
		t.Error("-all does not have what a path carries, or has what it does not")
	}
	if peers := benchtest.Cells(t, program(), "-limiters", "ifb,police"); bench.Uses(peers, bench.Netnice) || !bench.Uses(peers, limiterPolice) {
		t.Error("-limiters is not obeyed")
	}
	if _, err := program().Parse(benchtest.Flags(), []string{"-limiters", "htb"}); err == nil {
		t.Error("a limiter of sending was taken")
	}
}

func TestJudge(t *testing.T) {
	path := bench.Path{SmallMicros: 30, ChunkMicros: 40}
	good := bench.CellFigures{
		Limiter: bench.Netnice, Rate: 1e6, Connections: 32, IPRatio: 0.995, FirstRatio: 1.05, Jain: 0.99, RTTMicros: 20_000,
		Cell: bench.Cell{Interval: 4 * time.Second},
	}
	distant := func(f *bench.CellFigures) {
		f.Cell.RTT, f.RTTMicros = 100*time.Millisecond, 119_000
	}
	one := uint64(1)
	for name, c := range map[string]struct {
		change func(*bench.CellFigures)
		missed []string
		narrow bool // the path carries no more than the limit
	}{
		"good":                 {func(*bench.CellFigures) {}, nil, false},
		"too much":             {func(f *bench.CellFigures) { f.IPRatio = 1.012 }, []string{"ip_over_limit"}, false},
		"too little":           {func(f *bench.CellFigures) { f.IPRatio = 0.98 }, []string{"ip_over_limit"}, false},
		"burst":                {func(f *bench.CellFigures) { f.FirstRatio = 1.11 }, []string{"first_second"}, false},
		"slow start":           {func(f *bench.CellFigures) { f.FirstRatio = 0.3 }, nil, false},
		"unfair":               {func(f *bench.CellFigures) { f.Jain = 0.97 }, []string{"jain"}, false},
		"retransmits":          {func(f *bench.CellFigures) { f.Retransmits = 1 }, []string{"retransmits"}, false},
		"dropped":              {func(f *bench.CellFigures) { f.Dropped = &one }, []string{"dropped"}, false},
		"refused":              {func(f *bench.CellFigures) { f.Refused = 1 }, []string{"dropped"}, false},
		"few of many":          {func(f *bench.CellFigures) { f.Rate, f.Refused, f.Retransmits = 1250e6, 100, 100 }, nil, false},
		"more of many":         {func(f *bench.CellFigures) { f.Rate, f.Refused, f.Retransmits = 1250e6, 101, 101 }, []string{"retransmits", "dropped"}, false},
		"queued":               {func(f *bench.CellFigures) { f.RTTMicros = 20_100 }, []string{"added_delay"}, false},
		"slow, a turn":         {func(f *bench.CellFigures) { f.Rate, f.Connections, f.RTTMicros = 64e3, 4, 217_000 }, nil, false},
		"slow, more":           {func(f *bench.CellFigures) { f.Rate, f.Connections, f.RTTMicros = 64e3, 4, 218_000 }, []string{"added_delay"}, false},
		"not ours":             {func(f *bench.CellFigures) { f.Limiter, f.IPRatio, f.Dropped = limiterPolice, 0.5, &one }, nil, false},
		"distant":              {distant, nil, false},
		"the path loses":       {func(f *bench.CellFigures) { distant(f); f.Retransmits, f.PathLost = 9, 9 }, nil, false},
		"narrow":               {func(f *bench.CellFigures) { f.IPRatio = 0.3 }, nil, true},
		"narrow, too much":     {func(f *bench.CellFigures) { f.IPRatio = 1.1 }, []string{"ip_over_limit"}, true},
		"the path's own queue": {func(f *bench.CellFigures) { distant(f); f.Rate, f.RTTMicros = 125e6, 200_000 }, nil, false},
	} {
		f := good
		c.change(&f)
		judge(&f, path, false, !c.narrow)
		if !slices.Equal(f.Missed, c.missed) {
			t.Errorf("%s: missed %q; want %q", name, f.Missed, c.missed)
		}
	}
	f := good
	distant(&f)
	if judge(&f, path, false, true); f.AddedMicros != 18_960 {
		t.Errorf("added %d us, want 119 ms less 100 ms and 40 us", f.AddedMicros)
	}
}

func TestPrint(t *testing.T) {
	n := uint64(7)
	var out bytes.Buffer
	printHeader(&out, bench.Path{})
	printCell(&out, bench.CellFigures{
		Name: "police 1MB/s x1 cubic", Rate: 1e6, IPRatio: 1.5, FirstRatio: 2, Dropped: &n, Refused: 2, AddedMicros: 1500,
		Missed: []string{"ip_over_limit", "added_delay"},
	})
	for _, want := range []string{"1.5000*", "2.0000 ", " 9 ", "1.500*"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestSumCounters(t *testing.T) {
	const text = "TcpExt: A TCPRcvQDrop TCPOFODrop B\nTcpExt: 1 20 300 4000\nIpExt: TCPOFODrop\nIpExt: 7\n"
	if got, err := sumCounters(text, "TcpExt:", refusals()); err != nil || got != 320 {
		t.Errorf("%d (%v), want 320", got, err)
	}
	for _, bad := range []string{"", "TcpExt: TCPOFODrop\n", "TcpExt: TCPOFODrop\nTcpExt: x\n"} {
		if _, err := sumCounters(bad, "TcpExt:", refusals()); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
