package testbed

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a point in time: nanoseconds of CLOCK_MONOTONIC. All processes and namespaces of a machine share that
// clock, and TCP's pacing uses it.
type Instant int64

// Now returns the present instant.
func Now() Instant {
	var ts unix.Timespec
	// CLOCK_MONOTONIC exists on every Linux; the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return Instant(ts.Nano())
}

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Sleep waits for the duration. It returns an error if the context ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Point is a duration that was measured at an instant: a round trip, or the
// time that a request or a short connection took.
type Point struct {
	T Instant
	D time.Duration
}

// Between returns the durations of the points with from <= T < to.
func Between(points []Point, from, to Instant) []time.Duration {
	var out []time.Duration
	for _, p := range points {
		if p.T >= from && p.T < to {
			out = append(out, p.D)
		}
	}
	return out
}
