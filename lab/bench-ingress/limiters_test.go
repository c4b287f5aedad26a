package ingress

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/bench"
	"github.com/netnice/netnice/lab/internal/bench/benchtest"
)

// The other limiters of the comparison must hold their rate.
func TestPeersHoldTheirRate(t *testing.T) {
	testutil.SkipUnlessAll(t, "what the bench measures with has tests of its own in this package")
	testutil.RequireRoot(t)
	for name, peer := range map[string]struct {
		interval time.Duration
		got      func(bench.CellFigures) float64
	}{
		limiterIFB: {3 * time.Second, func(f bench.CellFigures) float64 { return f.LinkRatio }},
		// Its bucket is part of the result: 3% of that time.
		limiterPolice: {6 * time.Second, func(f bench.CellFigures) float64 {
			return (f.FirstIP + f.SteadyIP*f.Steady().Seconds()) / (float64(f.Rate) * f.Cell.Interval.Seconds())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// bbr continues where packets are lost, and leaves the policer no pause.
			c := bench.Cell{Limiter: name, Rate: 10e6, Conns: 4, Congestion: "bbr", Interval: peer.interval}
			f, err := measure(t.Context(), bench.Options{}, c)
			if err != nil {
				t.Fatal(err)
			}
			if got := peer.got(f); got < 0.95 || got > 1.05 {
				t.Errorf("%.4f of the limit", got)
			} else {
				t.Logf("%.4f of the limit", got)
			}
			if f.Dropped == nil || *f.Dropped == 0 && name == limiterPolice {
				t.Errorf("it does not say what it dropped: %v", f.Dropped)
			}
		})
	}
}

func TestIFBIsRemoved(t *testing.T) {
	pair := testutil.MustPair(t)
	count := func() (links, qdiscs int) {
		t.Helper()
		l, err := pair.B.Netlink().LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range l {
			q, err := pair.B.Netlink().QdiscList(link)
			if err != nil {
				t.Fatal(err)
			}
			qdiscs += len(q)
		}
		return len(l), qdiscs
	}
	links, qdiscs := count()
	for range 2 { // the second call replaces the first shaper
		if err := testbed.ShapeIngressHTB(pair.B, 1e6); err != nil {
			t.Fatal(err)
		}
	}
	if l, _ := count(); l != links+1 {
		t.Errorf("%d links with an ifb, %d before", l, links)
	}
	for range 2 {
		if err := testbed.UnshapeIngress(pair.B); err != nil {
			t.Fatal(err)
		}
	}
	if l, q := count(); l != links || q != qdiscs {
		t.Errorf("%d links and %d qdiscs, before %d and %d", l, q, links, qdiscs)
	}
}

// fakeNetnice makes a program that answers a limit with set, and everything else with success.
func fakeNetnice(t *testing.T, set string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netnice")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" != set ] || "+set+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The test makes a complete run, over both kinds of path; netnice refuses.
func TestRun(t *testing.T) {
	testutil.SkipUnlessAll(t, "what the bench measures with has tests of its own in this package")
	testutil.RequireRoot(t)
	o := benchtest.Parse(t, program(), "-interval", "1.5s", "-netnice", fakeNetnice(t, "{ echo 'not in this release' >&2; exit 125; }"),
		"-only", "none x1 cubic$|(ifb|netnice) 10MB/s x4 cubic 20ms|(police|netnice) 1MB/s x1 cubic$")
	var out bytes.Buffer
	if _, err := program().Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"netnice is left out: ", "not in this release\n3 cells", "none x1 cubic", "ifb 10MB/s x4 cubic 20ms", "path lost 0, dropped 0",
		"police 1MB/s x1 cubic", "\n0 wanted figures",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	o.Check = true
	if _, err := program().Run(t.Context(), o, &out); err == nil || !strings.Contains(err.Error(), "not in this release") {
		t.Errorf("-check of what was not measured: %v", err)
	}
}

// A netnice that takes the limit and does nothing misses the required figures.
func TestRunJudges(t *testing.T) {
	testutil.SkipUnlessAll(t, "what the bench measures with has tests of its own in this package")
	testutil.RequireRoot(t)
	o := benchtest.Parse(t, program(), "-interval", "1.5s", "-netnice", fakeNetnice(t, "exit 0"), "-only", "netnice 1MB/s x1 cubic$")
	var out bytes.Buffer
	missed, err := program().Run(t.Context(), o, &out)
	if err != nil {
		t.Fatal(err)
	}
	if missed < 2 || !strings.Contains(out.String(), "*") {
		t.Errorf("%d figures missed, want the rate and the first second:\n%s", missed, &out)
	}
}
