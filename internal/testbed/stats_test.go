package testbed

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{
		{nil, 1},
		{[]float64{0, 0}, 1},
		{[]float64{3}, 1},
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{1, 0, 0, 0}, 0.25},
		{[]float64{3, 1}, 0.8},
	} {
		if got := Jain(c.shares); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Jain(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	values := []int{50, 10, 40, 20, 30}
	for p, want := range map[float64]int{0: 10, 1: 10, 20: 10, 20.1: 20, 50: 30, 95: 50, 100: 50} {
		if got := Percentile(values, p); got != want {
			t.Errorf("Percentile(%v, %v) = %d, want %d", values, p, got, want)
		}
	}
	if got := Percentile([]time.Duration(nil), 50); got != 0 {
		t.Errorf("Percentile of nothing = %v, want 0", got)
	}
}

// The percentile is a value of the set, and at least the given part of the values does not exceed it.
func TestPercentileProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int(), 1, 50).Draw(t, "values")
		p := rapid.Float64Range(0, 100).Draw(t, "p")
		got := Percentile(values, p)
		if !slices.Contains(values, got) {
			t.Fatalf("%d is none of the values", got)
		}
		below := 0
		for _, v := range values {
			if v <= got {
				below++
			}
		}
		if float64(below) < p/100*float64(len(values))-1e-9 {
			t.Fatalf("only %d of %d values are <= %d", below, len(values), got)
		}
	})
}

func TestSeries(t *testing.T) {
	s := new(Series)
	if got := s.Goodput(0, 0, 100); got != 0 {
		t.Errorf("goodput of nothing = %v", got)
	}
	if _, ok := s.FirstByte(0); ok {
		t.Error("first byte of nothing")
	}
	second := Instant(time.Second)
	s.AddConn(Conn{ID: 0, Port: 1})
	s.AddConn(Conn{ID: 1, Port: 2})
	s.AddSample(Sample{T: 0, Ports: map[uint16]uint64{1: 0, 2: 0}})
	s.AddSample(Sample{T: 1 * second, Conns: []uint64{100}, Ports: map[uint16]uint64{1: 100, 2: 0}})
	s.AddSample(Sample{T: 2 * second, Conns: []uint64{200, 50}, Ports: map[uint16]uint64{1: 200, 2: 60}})
	for _, c := range []struct {
		port     uint16
		from, to Instant
		want     float64
	}{
		{0, 0, 2 * second, 130},
		{1, 0, 2 * second, 100},
		{2, second, 2 * second, 60},
		{1, second / 2, second + second/2, 100}, // interpolated
		{1, 2 * second, 4 * second, 0},          // after the last sample
		{1, second, second, 0},
	} {
		if got := s.Goodput(c.port, c.from, c.to); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("goodput of port %d in %d..%d = %v, want %v", c.port, c.from, c.to, got, c.want)
		}
	}
	for _, c := range []struct {
		from, to Instant
		want     time.Duration
	}{{0, 2 * second, time.Second}, {second / 2, second, time.Second / 2}, {second, 5 * second, 3 * time.Second}} {
		if got := s.LongestGap(c.from, c.to); got != c.want {
			t.Errorf("longest gap in %d..%d = %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if got, want := s.ConnGoodputs(0, second, 2*second), []float64{100, 50}; !slices.Equal(got, want) {
		t.Errorf("goodput of connections = %v, want %v", got, want)
	}
	if got, ok := s.FirstByte(2); !ok || got != second {
		t.Errorf("first byte on port 2 at %v, %v; want 1 s", got, ok)
	}
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		conn ConnInfo
		want Headers
	}{
		{ConnInfo{MSS: 1448, Timestamps: true}, Headers{52, 1500. / 1448, 1514. / 1448}},
		{ConnInfo{MSS: 1428, Timestamps: true, IPv6: true}, Headers{72, 1500. / 1428, 1514. / 1428}},
		{ConnInfo{MSS: 1460, BytesSent: 600, DataSegments: 1}, Headers{40, 640. / 600, 654. / 600}},
		{ConnInfo{}, Headers{40, 1, 1}},
	} {
		got := HeadersOf(c.conn)
		if got.PerSegment != c.want.PerSegment || math.Abs(got.IPFactor-c.want.IPFactor) > 1e-9 ||
			math.Abs(got.LinkFactor-c.want.LinkFactor) > 1e-9 {
			t.Errorf("HeadersOf(%+v) = %+v, want %+v", c.conn, got, c.want)
		}
	}
}

func TestInstant(t *testing.T) {
	a := Now()
	b := a.Add(time.Second)
	if b.Sub(a) != time.Second {
		t.Errorf("a second later is %v later", b.Sub(a))
	}
	points := []Point{{a, 1}, {b, 2}}
	if got := Between(points, a, b); !slices.Equal(got, []time.Duration{1}) {
		t.Errorf("Between = %v, want the first point only", got)
	}
}
