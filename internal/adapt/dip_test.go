package adapt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The law knows only the upper part of a TCP queue that was never shorter than 28 ms. This upper part is less
// than half of the aim while little is sent. The bytes that the law holds back would empty the queue, so
// others fill it. The figures are from 100 Mbit/s beside cubic. The test also has the case of a queue that does become
// empty.
func TestDipIntoAQueueThatWasFull(t *testing.T) {
	for _, c := range []struct {
		name  string
		queue time.Duration // left in the end
		mode  Mode
	}{{"others fill it", 4800 * time.Microsecond, ModeShare}, {"empty", 500 * time.Microsecond, ModeDelay}} {
		t.Run(c.name, func(t *testing.T) {
			l := New(config(1.25e6))
			l.begun, l.base, l.srtt, l.every = true, 28250*time.Microsecond, 39*time.Millisecond, 50*time.Millisecond
			l.baseNext, l.capacity, l.sent, l.rate, l.available = l.base, 14e6, 3.42e6, 3.37e6, 3.42e6
			l.queue, l.lastQueue, l.last = 10900*time.Microsecond, 10900*time.Microsecond, 14700*time.Millisecond
			at, begun := l.last, l.last
			l.beginDip(Probe{At: at}, l.longDip())
			for l.dip.on {
				at += 50 * time.Millisecond
				left := c.queue + max(10900*time.Microsecond-c.queue-(at-begun)/16, 0)
				l.Step(Probe{At: at, Bytes: 300, RTT: l.base + left, Gap: 20 * time.Microsecond}, l.rate)
			}
			require.Equal(t, c.mode, l.mode)
		})
	}
}
