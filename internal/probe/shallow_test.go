package probe_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The path has a bucket of three packets with room for hardly more behind it, as in the paper on topp. The result is
// the right rate, or an error that the rate is not known.
func TestShallowBucket(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestShallowQueue, TestMeasure")
	t.Parallel()
	for _, c := range testutil.Subset([]struct {
		bytesPerSec float64
		wait        time.Duration // the length of the queue
	}{
		{3500, 50 * time.Millisecond},
		{3500, 5 * time.Millisecond},
		{25_000, 50 * time.Millisecond},
		{125_000, 5 * time.Millisecond},
		{1_250_000, time.Millisecond},
	}, 0, 2, 4) {
		t.Run(fmt.Sprintf("%.0f/%v", c.bytesPerSec, c.wait), func(t *testing.T) {
			t.Parallel()
			p := testutil.MustPair(t)
			const bucket = 4750
			if err := testbed.ShapeBucket(p.A, uint64(c.bytesPerSec), bucket, bucket+uint32(c.bytesPerSec*c.wait.Seconds())); err != nil {
				t.Fatal(err)
			}
			prober := open(t, p, probe.Timestamp, false)
			r, err := probe.Measure(t.Context(), prober, probe.Options{Duration: 20 * time.Second})
			t.Logf("%+v, %v: %d trains, %d lost", r.Capacity, err, r.Trains, r.Lost)
			if errors.Is(err, probe.ErrDropped) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := c.bytesPerSec * 1500 / 1514
			if off := r.Capacity.BytesPerSec/want - 1; math.Abs(off) > 0.05 || r.Capacity.AtLeast {
				t.Errorf("the capacity is off by %.3f", off)
			}
		})
	}
}
