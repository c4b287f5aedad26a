package testbed

import (
	"math"
	"testing"
	"time"
)

func TestMostGoodput(t *testing.T) {
	var s Series
	var at Instant
	var sum uint64
	add := func(bytes uint64) {
		sum += bytes
		s.AddSample(Sample{T: at, Ports: map[uint16]uint64{1: sum}})
		at = at.Add(50 * time.Millisecond)
	}
	for i := range 100 { // 1000 bytes/s, and 100 bytes more at 2.5 s
		add(50)
		if i == 49 {
			add(150)
		}
	}
	var none Instant
	for _, c := range []struct {
		from, to time.Duration
		want     float64
	}{
		{0, 5 * time.Second, 1100},
		{0, 2 * time.Second, 1000},
		{3 * time.Second, 5 * time.Second, 1000},
		{0, 900 * time.Millisecond, 0}, // too short
		{8 * time.Second, 10 * time.Second, 0},
	} {
		if got := s.MostGoodput(none.Add(c.from), none.Add(c.to), time.Second); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("from %v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
