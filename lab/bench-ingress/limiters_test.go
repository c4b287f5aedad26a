package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/bench"
)

// What netnice is compared with must do its work.
func TestPeersHoldTheirRate(t *testing.T) {
	testutil.RequireRoot(t)
	for name, what := range map[string]func(bench.CellFigures) float64{
		limiterIFB:    func(f bench.CellFigures) float64 { return f.LinkRatio },
		limiterPolice: func(f bench.CellFigures) float64 { return f.IPRatio },
	} {
		t.Run(name, func(t *testing.T) {
			// With bbr, which goes on where packets are lost, the policer's bucket
			// stays empty.
			c := bench.Cell{Limiter: name, Rate: 10e6, Conns: 4, Congestion: "bbr", Interval: 3 * time.Second}
			f, err := measure(t.Context(), bench.Options{}, c)
			if err != nil {
				t.Fatal(err)
			}
			if got := what(f); got < 0.95 || got > 1.05 {
				t.Errorf("%.4f of the limit", got)
			}
			if f.Dropped == nil || *f.Dropped == 0 && name == limiterPolice {
				t.Errorf("it does not say what it dropped: %v", f.Dropped)
			}
		})
	}
}

func TestPoliceIsRemoved(t *testing.T) {
	testutil.RequireRoot(t)
	p, err := startPolice(1e6)
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.link.Info()
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.dir); err != nil {
		t.Error(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup is still there (%v)", err)
	}
	if l, err := link.NewFromID(info.ID); err == nil {
		l.Close()
		t.Error("the program is still attached")
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
	for range 2 { // it replaces what is there
		if err := testutil.ShapeIngressHTB(pair.B, 1e6); err != nil {
			t.Fatal(err)
		}
	}
	if l, _ := count(); l != links+1 {
		t.Errorf("%d links with an ifb, %d before", l, links)
	}
	for range 2 {
		if err := testutil.UnshapeIngress(pair.B); err != nil {
			t.Fatal(err)
		}
	}
	if l, q := count(); l != links || q != qdiscs {
		t.Errorf("%d links and %d qdiscs, before %d and %d", l, q, links, qdiscs)
	}
}

// A run in full, over both kinds of path.
func TestRun(t *testing.T) {
	testutil.RequireRoot(t)
	o := mustParse(t, "-interval", "1.5s", "-limiters", "none,ifb,police", "-only", "none x1 cubic$|ifb 10MB/s x4 cubic 20ms|police 1MB/s x1 cubic$")
	var out bytes.Buffer
	if _, err := program().Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"none x1 cubic", "ifb 10MB/s x4 cubic 20ms", "path lost 0, dropped 0", "police 1MB/s x1 cubic", "\n0 wanted figures"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
