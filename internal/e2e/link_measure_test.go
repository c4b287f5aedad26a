package e2e

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// The limit of a link becomes the measured capacity of its line, also in place of a lower one. A measurement that
// fails leaves the previous limit in force.
func TestLinkMeasured(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/adaptation/hostpath TestTrainRate and internal/daemon TestLine")
	t.Parallel()
	const rate = 1_250_000
	s := upStage(t)
	p := testutil.MustDistantPair(t, relay.Config{
		AtoB: relay.Path{Delay: 5 * time.Millisecond, Rate: rate}, BtoA: relay.Path{Delay: 5 * time.Millisecond},
	})
	s.python(options{in: p.A}, "wait()") // a namespace without a process has no device for netnice
	link := linkOf(t, p.A, testbed.Device)
	ups := func() (got float64) {
		t.Helper()
		for _, l := range s.nodes()[link].Limits {
			if l.Direction == api.Up {
				got = float64(l.BytesPerSec)
			}
		}
		return got
	}
	refused := func(hint string, args ...string) {
		t.Helper()
		if r := s.run(s.command(append([]string{"link"}, args...)...), p.A); !r.failedItself() || !strings.Contains(r.err, hint) {
			t.Errorf("%v: %v", args, r)
		}
	}
	refused("is reached by "+testbed.Device+", not by lo", "lo", "--measure", p.B4.String())
	refused("none of the others can be", testbed.Device, "--measure", p.B4.String(), "--rate", "1MB/s")
	if got := ups(); got != 0 {
		t.Errorf("refused, and there is a limit of %.0f", got)
	}
	for _, c := range []struct{ to, line string }{{p.B4.String(), ""}, {p.B6.String(), "--overhead=38"}} {
		args := []string{testbed.Device, "--measure", c.to}
		want := 0.98 * rate
		if c.line != "" {
			args, want = append(args, c.line), want*1538/1500
		}
		r := s.run(s.command(append([]string{"link"}, args...)...), p.A)
		t.Logf("%s%s", r.err, r.out)
		if got := ups(); r.code != 0 || math.Abs(got/want-1) > 0.1 || !strings.Contains(r.err, "carries") {
			t.Errorf("%v: a limit of %.0f, want %.0f", r, got, want)
		}
		if r := s.run(s.command("link", testbed.Device, "--up", "300kB/s"), p.A); r.code != 0 {
			t.Fatal(r)
		}
	}
	refused("answers to no probe packet", testbed.Device, "--measure", "10.98.0.200")
	if got := ups(); got != 300e3 {
		t.Errorf("after a measurement that failed a limit of %.0f", got)
	}
}
