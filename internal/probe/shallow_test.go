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

// shallow is a path with a bucket of three packets and a queue for few.
type shallow struct {
	bytesPerSec float64 // link bytes
	queue       int     // bytes that may wait
}

const (
	shallowBucket = 4750
	linkPacket    = 1514
)

// withWait is tbf's queue of that length beside what the bucket holds, which is tc's "latency".
func withWait(bytesPerSec float64, wait time.Duration) shallow {
	return shallow{bytesPerSec, shallowBucket + int(bytesPerSec*wait.Seconds())}
}

// packets returns the number of packets that may wait.
func (s shallow) packets() int { return s.queue / linkPacket }

// rateIsTold says whether a rate has to be told. The model (TestShallowQueue) tells one wherever more than three packets
// may wait; in a queue of three there may be no gap between packets that waited.
func (s shallow) rateIsTold() bool { return s.packets() >= 10 }

// within is the part of the rate by which a told one may be off. At 100 Mbit/s a packet takes as long as a busy machine
// delays one.
func (s shallow) within() float64 {
	if s.rateIsTold() || s.bytesPerSec > 1e7 {
		return 0.1
	}
	return 0.05
}

// The path has a bucket of three packets with room for hardly more behind it, as in the paper on topp, or for ten. The
// result is the right rate. Only where no more than three packets may wait it may also be an error that the rate is not
// known.
func TestShallowBucket(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestShallowQueue, TestMeasure")
	t.Parallel()
	for _, c := range testutil.Subset([]shallow{
		withWait(3500, 50*time.Millisecond),
		withWait(3500, 5*time.Millisecond),
		withWait(25_000, 50*time.Millisecond),
		withWait(125_000, 5*time.Millisecond),
		withWait(1_250_000, time.Millisecond),
		withWait(12_500_000, 0),
		{3500, 10 * linkPacket},
		{25_000, 10 * linkPacket},
		{125_000, 10 * linkPacket},
		{1_250_000, 10 * linkPacket},
		{12_500_000, 10 * linkPacket},
	}, 0, 2, 4, 8) {
		t.Run(fmt.Sprintf("%.0f B per s, queue of %d", c.bytesPerSec, c.queue), func(t *testing.T) {
			t.Parallel()
			p := testutil.MustPair(t)
			if err := testbed.ShapeBucket(p.A, uint64(c.bytesPerSec), shallowBucket, uint32(c.queue)); err != nil {
				t.Fatal(err)
			}
			// Ten packets wait for 4.3 s at the lowest rate.
			prober, err := probe.Open(t.Context(), probe.Config{To: p.B4, Kind: probe.Timestamp, Namespace: p.A.Path(), Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = prober.Close() })
			r, err := probe.Measure(t.Context(), prober, probe.Options{Duration: 20 * time.Second})
			t.Logf("%+v, %v: %d trains, %d lost", r.Capacity, err, r.Trains, r.Lost)
			if errors.Is(err, probe.ErrDropped) && !c.rateIsTold() {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := c.bytesPerSec * 1500 / linkPacket
			if off := r.Capacity.BytesPerSec/want - 1; math.Abs(off) > c.within() || r.Capacity.AtLeast {
				t.Errorf("the capacity is off by %.3f", off)
			}
		})
	}
}
