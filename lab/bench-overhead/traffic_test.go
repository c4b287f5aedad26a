package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

func TestMeasure(t *testing.T) {
	pair := testutil.MustPair(t)
	for _, kind := range []string{kindTCP, kindRR, kindUDP} {
		for name, path := range map[string]struct {
			into *testutil.NetNS
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
