// Package benchtest holds the common parts of the tests of benches.
package benchtest

import (
	"flag"
	"testing"
	"time"

	"github.com/netnice/netnice/lab/internal/bench"
)

// Flags returns the flags of a bench, without any yet.
func Flags() *flag.FlagSet { return flag.NewFlagSet("bench", flag.ContinueOnError) }

// Parse reads options of the bench.
func Parse(t *testing.T, p bench.Program, args ...string) bench.Options {
	t.Helper()
	o, err := p.Parse(Flags(), args)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Cells returns the cells that these options choose.
func Cells(t *testing.T, p bench.Program, args ...string) []bench.Cell {
	t.Helper()
	return p.Cells(Parse(t, p, args...))
}

// CheckSample checks the usual run of a bench. The run takes at most longest, and has the wanted cells, each once.
// It has only cells in every, the names of -all. It obeys -rtt, -loss and -quick.
func CheckSample(t *testing.T, p bench.Program, longest time.Duration, wanted []string, every map[string]bool) {
	t.Helper()
	all := Cells(t, p)
	if took := bench.Estimate(all); took > longest {
		t.Errorf("all %d cells take %v", len(all), took)
	}
	names := Names(all)
	if len(names) != len(all) {
		t.Errorf("%d cells have %d names", len(all), len(names))
	}
	for name := range names {
		if !every[name] {
			t.Errorf("-all has no %q", name)
		}
	}
	for _, want := range wanted {
		if !names[want] {
			t.Errorf("no cell %q", want)
		}
	}
	far := Cells(t, p, "-rtt", "50ms", "-loss", "0.02")
	if len(far) == 0 || far[0].RTT != 50*time.Millisecond || far[0].Loss != 0.02 {
		t.Errorf("-rtt and -loss are not obeyed: %+v", far)
	}
	if quick := bench.Estimate(Cells(t, p, "-quick")); quick.Minutes() > 1.1 {
		t.Errorf("-quick takes %v", quick)
	}
}

// Names returns the set of the cells' names.
func Names(cells []bench.Cell) map[string]bool {
	names := make(map[string]bool)
	for _, c := range cells {
		names[c.Name()] = true
	}
	return names
}
