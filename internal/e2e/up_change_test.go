package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The limit of a followed path changes all the time. Datagrams use all of it meanwhile.
func TestUpUDPChangedOften(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDP and internal/enforce/shaping TestBoundFollowsTheRate")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.startMeter()
	d := f.datagramsTo(6001, 1400, 0, false, nil)
	const mean = 1e6
	set := func(i int) {
		f.must("set", "--pid", d.tx.pid(), "--up", fmt.Sprintf("%dB/s", int(mean)+(i%2*2-1)*50_000))
	}
	set(0)
	f.queued()
	time.Sleep(time.Second)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(30 * time.Millisecond):
				_ = f.netnice("set", "--pid", d.tx.pid(), "--up", fmt.Sprintf("%dB/s", int(mean)+(i%2*2-1)*50_000))
			}
		}
	}()
	f.judge(testbed.Now(), 3*time.Second, func(from, to testbed.Instant) error {
		f.until(from)
		got, _ := d.rate(to.Sub(from))
		t.Logf("%.4f of the mean", got/mean)
		return compare("changed often", got, mean, 0.06)
	})
	close(stop)
	<-ended
}
