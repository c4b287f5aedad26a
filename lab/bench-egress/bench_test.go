package egress

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
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

func TestCells(t *testing.T) {
	every := benchtest.Names(benchtest.Cells(t, program(), "-all"))
	benchtest.CheckSample(t, program(), 8*time.Minute, []string{
		"none x16 bbr", "htb 128KB/s x4 cubic", "netnice 1.25GB/s x16 bbr", "netnice 10MB/s x16+1 cubic", "netnice 1B/s x1 cubic",
		"trickle 1MB/s x1 cubic", "tbf 10MB/s x16 cubic", "netnice 10MB/s x64 reno IPv6", "netnice 1MB/s x4 cubic 300ms", "htb 1MB/s x16 bbr 20ms 1%",
	}, every)
	if every["netnice 1.25GB/s x1 cubic 20ms"] || !every["netnice 100MB/s x64 reno IPv6 300ms 1%"] {
		t.Error("-all does not have what a path carries, or has what it does not")
	}
	only := benchtest.Cells(t, program(), "-only", "netnice 1MB/s x16 ")
	if len(only) != 4 {
		t.Errorf("%d cells match, want cubic and bbr, and bbr over two paths", len(only))
	}
	if peers := benchtest.Cells(t, program(), "-limiters", "none,htb"); bench.Uses(peers, bench.Netnice) || !bench.Uses(peers, limiterHTB) {
		t.Error("-limiters is not obeyed")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-limiters", "tc"}, {"-interval", "1s"}, {"-only", "("}, {"extra"}} {
		if _, err := program().Parse(benchtest.Flags(), args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestJudge(t *testing.T) {
	path := bench.Path{SmallMicros: 30, ChunkMicros: 40}
	good := bench.CellFigures{Limiter: bench.Netnice, Rate: 1e6, Connections: 16, IPRatio: 0.996, FirstRatio: 1.04, MostRatio: 1.01, Jain: 1, RTTMicros: 79, Shares: [2]float64{0.5, 0.5}, Cell: bench.Cell{Interval: 4 * time.Second}}
	distant := func(f *bench.CellFigures) {
		f.Cell.RTT, f.RTTMicros = 100*time.Millisecond, 100_100
	}
	for name, c := range map[string]struct {
		change  func(*bench.CellFigures)
		missed  []string
		delayed bool
		narrow  bool // the path carries no more than the limit
	}{
		"good":            {func(*bench.CellFigures) {}, nil, false, false},
		"too much":        {func(f *bench.CellFigures) { f.IPRatio = 1.011 }, []string{"ip_over_limit"}, false, false},
		"too little":      {func(f *bench.CellFigures) { f.IPRatio = 0.98 }, []string{"ip_over_limit"}, false, false},
		"retransmits":     {func(f *bench.CellFigures) { f.Retransmits = 1 }, []string{"retransmits"}, false, false},
		"noise":           {func(f *bench.CellFigures) { f.RTTMicros = 90 }, nil, false, false},
		"delayed":         {func(f *bench.CellFigures) { f.RTTMicros = 23000 }, nil, true, false},
		"queued":          {func(f *bench.CellFigures) { f.RTTMicros = 60000 }, []string{"rtt"}, false, false},
		"queued and fast": {func(f *bench.CellFigures) { f.RTTMicros, f.Rate = 1000, 1e9 }, []string{"rtt"}, false, false},
		"shares":          {func(f *bench.CellFigures) { f.Cell.Shares, f.Shares = true, [2]float64{0.54, 0.46} }, []string{"shares"}, false, false},
		"shares just so":  {func(f *bench.CellFigures) { f.Cell.Shares, f.Shares = true, [2]float64{0.519, 0.481} }, nil, false, false},
		"unequal":         {func(f *bench.CellFigures) { f.Jain = 0.98 }, []string{"jain"}, false, false},
		"at first":        {func(f *bench.CellFigures) { f.FirstRatio = 1.06 }, []string{"first_second"}, false, false},
		"in between":      {func(f *bench.CellFigures) { f.MostRatio = 1.05 }, []string{"fullest_second"}, false, false},
		"not ours":        {func(f *bench.CellFigures) { f.Limiter, f.IPRatio = limiterHTB, 0.5 }, nil, false, false},
		"distant":         {distant, nil, false, false},
		"distant, late": {func(f *bench.CellFigures) {
			distant(f)
			f.RTTMicros, f.Rate = 160_000, 10e6
		}, []string{"rtt"}, false, false},
		"narrow":           {func(f *bench.CellFigures) { f.IPRatio = 0.3 }, nil, false, true},
		"narrow, too much": {func(f *bench.CellFigures) { f.IPRatio = 1.1 }, []string{"ip_over_limit"}, false, true},
		"lost on the way": {func(f *bench.CellFigures) {
			distant(f)
			f.Loss, f.IPRatio, f.SentRatio, f.Retransmits, f.PathLost = 0.01, 0.99, 1, 30, 30
		}, nil, false, false},
		"a segment or none": {func(f *bench.CellFigures) { f.Rate, f.IPRatio = 1, 300 }, nil, false, false},
	} {
		f := good
		c.change(&f)
		judge(&f, path, false, !c.narrow)
		if !slices.Equal(f.Missed, c.missed) || f.AckDelayed != c.delayed {
			t.Errorf("%s: missed %q, delayed %v; want %q, %v", name, f.Missed, f.AckDelayed, c.missed, c.delayed)
		}
	}
	f := good
	f.RTTMicros = 23000
	if judge(&f, path, true, true); f.AckDelayed {
		t.Error("without delayed acknowledgements nothing is due to them")
	}
}

// The test runs one cell of each limiter completely.
func TestRun(t *testing.T) {
	testutil.SkipUnlessAll(t, "what the bench measures with has tests of its own in this package")
	testutil.RequireRoot(t)
	o := benchtest.Parse(t, program(), "-interval", "1.5s", "-limiters", "none,htb", "-only", "none x1 cubic$|htb 10MB/s x16\\+1|htb 1MB/s x4 cubic 20ms")
	var out bytes.Buffer
	if _, err := program().Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"none x1 cubic", "htb 10MB/s x16+1 cubic", "shares 0.", "htb 1MB/s x4 cubic 20ms", "path lost 0, dropped 0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
