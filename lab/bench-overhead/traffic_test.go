package overhead

import (
	"net/netip"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/stat"
)

func TestMeasure(t *testing.T) {
	pair := testutil.MustPair(t)
	for _, kind := range []string{kindTCP, kindRR, kindUDP} {
		for name, path := range map[string]struct {
			into *testbed.NetNS
			to   netip.Addr
		}{"lo": {pair.A, netip.MustParseAddr("127.0.0.1")}, "veth": {pair.B, pair.B4}} {
			f, err := measure(kind, pair.A, path.into, path.to, 20*time.Millisecond)
			if err != nil {
				t.Fatalf("%s over %s: %v", kind, name, err)
			}
			if f.ops < 100 || f.perSecond < f.ops || f.perCPU <= 0 {
				t.Errorf("%s over %s: %+v", kind, name, f)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	for want, list := range map[string][]stat.Interval{
		"ok":        {{Low: 0.99, Median: 1, High: 1.1}, {Low: 1.01, Median: 1.02, High: 1.03}},
		"beyond":    {{Low: 0.9, Median: 0.95, High: 0.9899}},
		"unsettled": {{Low: 0.9, Median: 0.95, High: 0.99}, {Low: 0.98, Median: 1, High: 1.2}},
	} {
		for _, i := range list {
			if got := verdict(i, 0.01); got != want || mark(got) == "" {
				t.Errorf("%+v is %q instead of %q", i, got, want)
			}
		}
	}
}

func TestMeter(t *testing.T) {
	m := meter{costs: []float64{8, 2, 4, 2, 2, 100, 2, 3}}
	if got := m.perCPU(1, 1); got != 0.5 {
		t.Errorf("%v operations per CPU second", got)
	}
	if got := (&meter{costs: []float64{1, 1, 1}}).perCPU(3, 2); got != 1.5 {
		t.Errorf("few slices: %v operations per CPU second", got)
	}
	tid := make(chan int, 1)
	begun, done := make(chan struct{}), make(chan thread, 1)
	go func() {
		done <- onCPU(0, tid, func() (float64, error) {
			for spins, begin := 0, threadCPU(); threadCPU()-begin < 5e-3; {
				spins++
			}
			begun <- struct{}{}
			<-begun
			return 0, nil
		})
	}()
	id := <-tid
	<-begun
	if cpu := cpuOf(id); cpu < 5e-3 || cpu > 1 {
		t.Errorf("the other thread used %v s", cpu)
	}
	begun <- struct{}{}
	<-done
}
