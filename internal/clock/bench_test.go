package clock

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// BenchmarkCharge measures one charge inside the kernel, including map lookups. All classes are backlogged.
func BenchmarkCharge(b *testing.B) {
	r := open(b)
	const rate, chunk = 1_000_000_000, 65536
	for _, classes := range []uint64{1, 1000} {
		b.Run(fmt.Sprintf("classes=%d", classes), func(b *testing.B) {
			node, err := r.NewClock(clocktest.State{TimeNs: bootNS, Vtime: clocktest.FirstVirtualTime})
			if err != nil {
				b.Fatal(err)
			}
			op := clocktest.Op{
				NowNs: bootNS, Rate: rate, WireBytes: chunk, Node: node,
				Weight: clocktest.DefaultWeight, Mode: clocktest.Charge,
			}
			took, err := r.Bench(op, classes, chunk*time.Second/rate, uint32(max(b.N, 100)))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took), "ns/charge")
		})
	}
}
